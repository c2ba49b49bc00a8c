#include "coordinator/launch/launch_causes.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "coordinator/launch/launch_environment.h"

namespace stagecoach {
namespace {

// Each is set in a job of that batch system.
constexpr std::pair<absl::string_view, absl::string_view> kAllocations[] = {{"SLURM_JOB_ID", "a Slurm allocation"},
                                                                            {"PBS_NODEFILE", "a PBS job"},
                                                                            {"LSB_DJOB_HOSTFILE", "an LSF job"},
                                                                            {"PE_HOSTFILE", "a Grid Engine job"}};

std::pair<absl::string_view, absl::string_view> Split(const std::string& variable) {
  return absl::StrSplit(variable, absl::MaxSplits('=', 1));
}

bool HasWord(absl::string_view text, absl::string_view word) {
  const auto is_part = [text](size_t at) {
    return at < text.size() && (absl::ascii_isalnum(text[at]) || text[at] == '_');
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (!(at > 0 && is_part(at - 1)) && !is_part(at + word.size())) return true;
  }
  return false;
}

// Whether a text of Open MPI is about a parameter: by its name, or by its framework and a component that was given.
bool SpeaksOf(absl::string_view text, absl::string_view parameter, absl::string_view value) {
  if (absl::StrContains(text, parameter)) return true;
  if (!HasWord(text, parameter.substr(0, parameter.find('_')))) return false;
  for (const absl::string_view given : absl::StrSplit(value, ',', absl::SkipEmpty())) {
    const absl::string_view component = absl::StripPrefix(given, "^");
    if (!component.empty() && absl::ascii_isalpha(component[0]) && HasWord(text, component)) return true;
  }
  return false;
}

// "OMPI_MCA_btl='tcp'": what a user sees is quoted.
std::string Shown(const std::string& variable) {
  const auto [name, value] = Split(variable);
  return absl::StrCat(name, "=", ShownText(value));
}

}  // namespace

std::string AdviceForSettings(absl::string_view printed, const std::vector<std::string>& environment) {
  const std::vector<std::string> settings = UsersMpiSettings(environment);
  if (settings.empty()) return "";
  std::vector<absl::string_view> all, spoken_of;
  std::vector<std::string> shown;
  for (const std::string& setting : settings) {
    const auto [name, value] = Split(setting);
    shown.push_back(Shown(setting));
    all.push_back(name);
    if (SpeaksOf(printed, absl::StripPrefix(name, "OMPI_MCA_"), value)) spoken_of.push_back(name);
  }
  return absl::StrCat("; Open MPI is set otherwise than usual by ", absl::StrJoin(shown, ", "),
                      spoken_of.empty() ? "; where this launch is not to have that, unset "
                                        : "; what it printed is about one of these: unset ",
                      absl::StrJoin(spoken_of.empty() ? all : spoken_of, " "));
}

std::string AdviceForLaunch(absl::string_view launcher, absl::string_view printed, absl::string_view launcher_args,
                            const std::vector<std::string>& environment) {
  std::string advice = AdviceForSettings(printed, environment);
  for (const std::string& variable : environment) {
    const auto [name, value] = Split(variable);
    for (const auto& [allocation, what] : kAllocations) {
      if (name != allocation || value.empty()) continue;
      absl::StrAppend(&advice, "; ", Shown(variable), " says that this is ", what, "; where that is over, unset ",
                      name);
    }
  }
  if (!launcher_args.empty()) {
    absl::StrAppend(&advice, "; check `launcher_args`, which ", launcher, " got: ", launcher_args);
  }
  if (advice.empty()) return "check `stages`, `hostfile` and `launcher_args`; `dry_run` shows the whole launch line";
  return absl::StrCat(absl::StripPrefix(advice, "; "), "; `dry_run` shows the whole launch line");
}

}  // namespace stagecoach
