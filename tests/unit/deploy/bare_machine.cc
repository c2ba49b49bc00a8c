#include "tests/unit/deploy/bare_machine.h"

#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/testing/paths.h"

namespace stagecoach::testing {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kInstall = "apt-get install -y -qq --no-install-recommends ";

}  // namespace

BareMachine::BareMachine(User user) {
  fs::create_directory(directory_.File("bin"));
  for (const char* tool :
       {"awk", "bash", "cat", "dirname", "env", "getconf", "grep", "mktemp", "nproc", "rm", "sed", "sh", "true"}) {
    const fs::path path =
        fs::exists(fs::path("/usr/bin") / tool) ? fs::path("/usr/bin") / tool : fs::path("/bin") / tool;
    fs::create_symlink(path, Tool(tool));
  }
  fs::copy(SourcePath("deploy"), directory_.File("deploy"));  // its files; not its folders
  WriteFileOrDie(directory_.File("asked"), "");
  WriteFileOrDie(directory_.File("installed"), "bash\n");

  // As dpkg-query does: a line for each package it knows, and 1 when there is one that it has never heard of.
  Replace("dpkg-query", R"(code=0
for word in "$@"; do
  case $word in -*) continue ;; esac
  if grep -qxF -- "$word" "$MACHINE/installed"; then echo "$word installed"
  else echo "dpkg-query: no packages found matching $word" >&2; code=1; fi
done
exit $code)");
  Replace("apt-get", R"(echo "apt-get $*" >>"$MACHINE/asked"
[ "$1" = install ] && for word in "$@"; do case $word in -* | install) ;; *) echo "$word" >>"$MACHINE/installed" ;; esac; done
exit 0)");
  Replace("cmake", "echo \"cmake $*\" >>\"$MACHINE/asked\"; exit 7");
  Replace("id", user == User::kRoot ? "echo 0" : "echo 1000");
  if (user == User::kWithSudo) {
    Replace("sudo", "[ \"$1\" = -n ] && shift; [ \"$1\" = true ] || echo sudo >>\"$MACHINE/asked\"; exec env \"$@\"");
  }
}

void BareMachine::Replace(const std::string& tool, const std::string& body) {
  Remove(tool);
  InstallProgram("bin/" + tool, body);
}

void BareMachine::InstallProgram(const std::string& path, const std::string& body) {
  fs::create_directories(fs::path(directory_.File(path)).parent_path());
  WriteFileOrDie(directory_.File(path), absl::StrCat("#!/bin/sh\n", body, "\n"));
  chmod(directory_.File(path).c_str(), 0755);
}

void BareMachine::Remove(const std::string& tool) { fs::remove(Tool(tool)); }

ProgramResult BareMachine::Run(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {directory_.File("deploy/" + script)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProgram("/bin/bash", words, "", 60, {{"PATH", directory_.File("bin")}, {"MACHINE", directory_.path()}});
}

std::vector<std::string> BareMachine::Asked() const {
  return absl::StrSplit(ReadFileOrDie(directory_.File("asked")), '\n', absl::SkipEmpty());
}

std::vector<std::string> BareMachine::Installed() const {
  for (const std::string& line : Asked()) {
    if (absl::StartsWith(line, kInstall)) return absl::StrSplit(line.substr(kInstall.size()), ' ');
  }
  return {};
}

}  // namespace stagecoach::testing
