#include "coordinator/launch/launch_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "coordinator/launch/hosts/host_file.h"
#include "coordinator/launch/hosts/host_networks.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::StatusOr<std::string> FindCoordinator(const std::string& path) {
  if (!path.empty()) return Absolute(path);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("cannot find the path of this program: ", error.message()));
  return self.string();
}

absl::StatusOr<std::string> FindLauncher(const std::string& name, const char* package) {
  absl::StatusOr<std::string> path = FindProgram(name);
  if (path.ok()) return path;
  return absl::NotFoundError(
      absl::StrCat(path.status().message(), "; install what starts the ranks (Debian: apt install ", package, ")"));
}

// Sets the launcher's path, and says which it is.
absl::StatusOr<LauncherKind> ChooseLauncher(const LaunchOptions& options, std::string* path) {
  if (options.launcher == LauncherKind::kAuto && InSlurmAllocation()) {
    const absl::StatusOr<std::string> srun = FindProgram(options.srun_path);
    if (srun.ok() && OffersPmix(*srun)) {
      *path = *srun;
      return LauncherKind::kSrun;
    }
  }
  const bool srun = options.launcher == LauncherKind::kSrun;
  ASSIGN_OR_RETURN(
      *path, srun ? FindLauncher(options.srun_path, "slurm-client") : FindLauncher(options.mpirun_path, "openmpi-bin"));
  if (!srun) return LauncherKind::kMpirun;
  if (InSlurmAllocation()) return LauncherKind::kSrun;
  return absl::FailedPreconditionError(
      "`launcher` is srun, but this is no Slurm allocation (SLURM_JOB_ID is not set); start the coordinator from a "
      "batch script or inside of salloc");
}

absl::StatusOr<AllocatedHosts> HostsOf(const LaunchOptions& options) {
  if (options.hostfile.empty() && options.hosts.empty()) return HostsOfAllocation();
  if (!options.hostfile.empty() && !options.hosts.empty()) {
    return absl::InvalidArgumentError("`hostfile` and `hosts` name the hosts twice; give one of them");
  }
  AllocatedHosts named;
  if (!options.hostfile.empty()) {
    named.source = absl::StrCat("host file '", options.hostfile, "'");
    ASSIGN_OR_RETURN(named.hosts, ReadHostFile(options.hostfile));
  } else {
    named.source = "the list of `hosts`";
    ASSIGN_OR_RETURN(named.hosts, ParseHostList(options.hosts));
  }
  return named;
}

// Puts the hosts of a plan's stages before the others, in its order and with its numbers of stages; the others take the
// place of lost ones. Leaves all as it is where the plan names a host that is not there: what the engine then says is
// clearer. Names are compared up to the first dot.
void OrderAsPlanned(const pb::PlannedFor& planned, std::vector<LaunchHost>* hosts) {
  const auto shorter = [](absl::string_view name) { return name.substr(0, name.find('.')); };
  std::vector<LaunchHost> ordered, others = *hosts;
  for (int s = 0; s < planned.stages_size();) {
    const absl::string_view name = shorter(planned.stages(s).host());
    int stages = 1;
    while (s + stages < planned.stages_size() && shorter(planned.stages(s + stages).host()) == name) ++stages;
    const auto found = std::find_if(others.begin(), others.end(), [&](const LaunchHost& host) {
      return shorter(host.name()) == name && host.slots.slots >= stages && !host.slots.draft;
    });
    if (found == others.end()) return;
    ordered.push_back(std::move(*found));
    ordered.back().slots.slots = stages;
    ordered.back().slots.spare = false;
    others.erase(found);
    s += stages;
  }
  ordered.insert(ordered.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  *hosts = std::move(ordered);
}

// Leaves a host for the draft in the list if and only if there is a draft.
void SetDraftHost(bool draft, std::vector<LaunchHost>* hosts) {
  const auto named = std::find_if(hosts->begin(), hosts->end(), [](const LaunchHost& h) { return h.slots.draft; });
  if (draft && named == hosts->end()) {
    hosts->push_back({.slots = {.name = "localhost", .draft = true}, .here = true});
  } else if (!draft && named != hosts->end()) {
    hosts->erase(named);
  }
}

}  // namespace

Placement LaunchPlan::PlaceAll() const {
  Placement placement = PlaceStages(hosts, stages, /*left_out=*/{});
  PlaceDraft(hosts, /*left_out=*/{}, &placement);
  return placement;
}

bool LaunchPlan::AllHere() const {
  return std::all_of(hosts.begin(), hosts.end(), [](const LaunchHost& host) { return host.here; });
}

absl::StatusOr<std::string> FindStageWorker(const LaunchOptions& options) {
  std::vector<std::string> candidates;
  if (!options.stage_worker_path.empty()) {
    candidates.push_back(Absolute(options.stage_worker_path));
  } else {
    ASSIGN_OR_RETURN(const std::string coordinator, FindCoordinator(options.coordinator_path));
    const std::filesystem::path directory = std::filesystem::path(coordinator).parent_path();
    candidates.push_back((directory / "stage_worker").lexically_normal().string());
    candidates.push_back((directory / "../stage_worker/stage_worker").lexically_normal().string());
  }
  for (const std::string& candidate : candidates) {
    if (FindProgram(candidate).ok()) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no program stage_worker; tried ", absl::StrJoin(candidates, ", "),
                                          "; give its path with `stage_worker_path`"));
}

absl::StatusOr<LaunchHosts> ResolveHosts(const LaunchOptions& options) {
  RETURN_IF_ERROR(CheckJobFieldOrDefault(JobLimits::kStages, options.stages));
  ASSIGN_OR_RETURN(AllocatedHosts named, HostsOf(options));
  LaunchHosts resolved;
  if (named.hosts.empty()) {
    resolved.stages = std::max(options.stages, 1);
    resolved.hosts = {{.slots = {.name = "localhost", .slots = resolved.stages}, .here = true}};
    SetDraftHost(!options.job.draft_model_path().empty(), &resolved.hosts);
    return resolved;
  }
  for (HostSlots& host : named.hosts) {
    const bool here = IsThisHost(host.name);
    resolved.hosts.push_back({std::move(host), here});
  }
  SetDraftHost(!options.job.draft_model_path().empty(), &resolved.hosts);
  if (options.job.has_planned_for()) OrderAsPlanned(options.job.planned_for(), &resolved.hosts);
  const int64_t slots = SlotsOf(resolved.hosts);
  const int64_t wanted = options.stages != 0 ? options.stages : slots;
  RETURN_IF_ERROR(CheckJobField(JobLimits::kStages, wanted));
  if (wanted > slots) {
    const absl::string_view fewer =
        options.job.has_planned_for() ? "make a new plan for these, or leave `planned_for` out" : "lower `stages`";
    return absl::InvalidArgumentError(absl::StrCat(wanted, " stages need ", wanted, " slots, but ", named.source,
                                                   " has ", slots, "; ", fewer,
                                                   ", or give more slots (`hosts` says which)"));
  }
  resolved.stages = static_cast<int>(wanted);
  return resolved;
}

absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchOptions& options) {
  LaunchPlan plan;
  ASSIGN_OR_RETURN(const LauncherKind launcher, ChooseLauncher(options, &plan.launcher));
  ASSIGN_OR_RETURN(plan.programs.coordinator, FindCoordinator(options.coordinator_path));
  ASSIGN_OR_RETURN(plan.programs.stage_worker, FindStageWorker(options));
  absl::StatusOr<std::vector<std::string>> words = SplitShellWords(options.launcher_args);
  if (!words.ok()) return absl::InvalidArgumentError(absl::StrCat("`launcher_args`: ", words.status().message()));
  ASSIGN_OR_RETURN(LaunchHosts hosts, ResolveHosts(options));
  plan.hosts = std::move(hosts.hosts);
  plan.stages = hosts.stages;
  std::vector<std::string> others;
  for (const LaunchHost& host : plan.hosts) {
    if (!host.here) others.push_back(host.name());
  }
  LauncherSetup setup = {plan.launcher, *std::move(words), NetworksTowards(others)};
  if (launcher == LauncherKind::kSrun) {
    plan.backend = MakeSlurm(std::move(setup));
  } else {
    const absl::StatusOr<std::string> srun = FindProgram(options.srun_path);
    setup.rsh_agent = options.rsh_agent;
    if (InSlurmAllocation() && srun.ok()) setup.srun = *srun;
    plan.backend = MakeOpenMpi(std::move(setup));
  }
  return plan;
}

absl::StatusOr<std::string> DescribeLaunch(const LaunchOptions& options) {
  ASSIGN_OR_RETURN(const LaunchPlan plan, ResolveLaunch(options));
  const Placement placement = plan.PlaceAll();
  const LaunchPlaces places = {absl::StrCat(TemporaryDirectoryOf(placement), "/stagecoach.XXXXXX"),
                               "/dev/shm/stagecoach.XXXXXX"};
  std::vector<std::string> words;
  plan.backend->SetEnvironment(placement, places, &words);
  const std::vector<std::string> arguments = plan.backend->Arguments(plan.programs, placement, places);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return JoinShellWords(words);
}

}  // namespace stagecoach
