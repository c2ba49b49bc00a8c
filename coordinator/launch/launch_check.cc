#include "coordinator/launch/launch_check.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/host_info.h"
#include "common/base/host_limits.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kVersionAnswers = absl::Seconds(20);
constexpr size_t kMaxParentBytes = 60;  // a socket's path has at most 107

int ComputeThreads(int stages, int threads, int cores) {
  return threads > 0 ? stages * threads : std::max(stages, cores);
}

}  // namespace

absl::StatusOr<std::string> LauncherVersion(const LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ProgramOutput output, RunForOutput({plan.launcher, "--version"}, kVersionAnswers));
  const absl::string_view said = absl::StripAsciiWhitespace(output.text);
  const std::string version(absl::StripAsciiWhitespace(said.substr(0, said.find('\n'))));
  const bool mpirun = std::strcmp(plan.backend->name(), "mpirun") == 0;
  if (mpirun && output.exit_code == 0 && !said.empty() && !IsOpenMpis(said)) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", plan.launcher, "' is not Open MPI's: it says ", ShownText(version),
                     "; install Open MPI (Debian: apt install openmpi-bin) and put it first in PATH"));
  }
  return version;
}

bool IsOpenMpis(absl::string_view version) {
  return absl::StrContains(version, "Open MPI") || absl::StrContains(version, "OpenRTE");
}

std::string TemporaryDirectoryOf(const Placement& placement) {
  if (!placement.AllHere()) return kLaunchDirectoryOfAllHosts;
  const char* parent = std::getenv("TMPDIR");
  return parent != nullptr && parent[0] == '/' && std::strlen(parent) <= kMaxParentBytes ? parent : "/tmp";
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

}  // namespace stagecoach
