#include "coordinator/launch/launch_check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kVersionAnswers = absl::Seconds(20);
constexpr size_t kMaxParentBytes = 60;  // a socket's path has at most 107

int ComputeThreads(int stages, int threads, int cores) {
  return threads > 0 ? stages * threads : std::max(stages, cores);
}

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

absl::StatusOr<std::string> LauncherVersion(const LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ProgramOutput output, RunForOutput({plan.launcher, "--version"}, kVersionAnswers));
  const absl::string_view said = absl::StripAsciiWhitespace(output.text);
  const std::string version(absl::StripAsciiWhitespace(said.substr(0, said.find('\n'))));
  const bool mpirun = std::strcmp(plan.backend->name(), "mpirun") == 0;
  if (mpirun && output.exit_code == 0 && !said.empty() && !IsOpenMpiVersion(said)) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", plan.launcher, "' is not Open MPI's: it says ", ShownText(version),
                     "; install Open MPI (Debian: apt install openmpi-bin) and put it first in PATH"));
  }
  return version;
}

bool IsOpenMpiVersion(absl::string_view version) {
  return absl::StrContains(version, "Open MPI") || absl::StrContains(version, "OpenRTE");
}

std::string TemporaryDirectoryOf(const Placement& placement) {
  if (!placement.AllHere()) return kLaunchDirectoryOfAllHosts;
  const std::string parent = Variable("TMPDIR");
  return absl::StartsWith(parent, "/") && parent.size() <= kMaxParentBytes ? parent : "/tmp";
}

std::vector<std::string> ShortagesHere(const Placement& placement, int threads) {
  int stages = 0;
  for (const PlacedStages& placed : placement.hosts) stages += placed.here ? placed.stages : 0;
  RanksOnHost ranks;
  ranks.ranks = stages + 1;
  ranks.own_directory = placement.AllHere();
  ranks.compute_threads = stages > 0 ? ComputeThreads(stages, threads, AllowedCores()) : 0;
  return ShortagesFor(ranks, ReadHostLimits(TemporaryDirectoryOf(placement)));
}

std::vector<std::string> ShortagesThere(const pb::HostReport& report, const std::string& host,
                                        const std::vector<LaunchHost>& hosts, int stages, int threads) {
  if (!report.has_limits()) return {};
  int slots = 0;
  for (const LaunchHost& known : hosts) slots += known.name() == host ? known.slots.slots : 0;
  RanksOnHost ranks;
  ranks.ranks = std::min(slots, stages);
  ranks.compute_threads = ComputeThreads(ranks.ranks, threads, report.hello().allowed_cores());
  ranks.own_directory = false;
  return ShortagesFor(ranks, FromProto(report.limits()));
}

absl::Status CheckThisHost(const Placement& placement, int threads) {
  const std::vector<std::string> shortages = ShortagesHere(placement, threads);
  if (shortages.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no rank can start on this host: ", absl::StrJoin(shortages, "; ")));
}

std::string AdviceForSettings(absl::string_view printed, const std::vector<std::string>& environment) {
  const std::vector<std::string> settings = UserMpiSettings(environment);
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
    const absl::string_view what = AllocationNamedBy(name);
    if (what.empty() || value.empty()) continue;
    absl::StrAppend(&advice, "; ", Shown(variable), " says that this is ", what, "; where that is over, unset ", name);
  }
  if (!launcher_args.empty()) {
    absl::StrAppend(&advice, "; check `launcher_args`, which ", launcher, " got: ", launcher_args);
  }
  if (advice.empty()) return "check `stages`, `hostfile` and `launcher_args`; `dry_run` shows the whole launch line";
  return absl::StrCat(absl::StripPrefix(advice, "; "), "; `dry_run` shows the whole launch line");
}

}  // namespace stagecoach
