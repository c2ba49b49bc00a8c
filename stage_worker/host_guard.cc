#include "stage_worker/host_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/private_dir.h"
#include "stage_worker/host_report.h"

namespace stagecoach {
namespace {

constexpr int kExitUsage = 2;
constexpr int kCannotExec = 127;
constexpr absl::Duration kRanksEnd = absl::Seconds(20);

[[noreturn]] void Exec(std::vector<std::string>* command) {
  std::vector<char*> words;
  for (std::string& word : *command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  LogError(absl::StrCat("cannot run '", words[0], "': ", std::strerror(errno)));
  _exit(kCannotExec);
}

}  // namespace

int GuardHost(std::vector<std::string> arguments) {
  if (arguments.size() < 2 || !IsPrivateName(arguments[0])) {
    LogError("expected the name of a launch, such as stagecoach.AbC123, and a command");
    return kExitUsage;
  }
  const std::string name = arguments[0];
  arguments.erase(arguments.begin());
  const pid_t command = fork();
  if (command == 0) Exec(&arguments);
  int status = 0, code = kCannotExec;
  if (command > 0) {
    while (waitpid(command, &status, 0) < 0 && errno == EINTR) {
    }
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ClearHost({name}, kRanksEnd);
  return code;
}

}  // namespace stagecoach
