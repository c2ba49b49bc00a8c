#include "coordinator/launch/launch_line.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/local_host.h"

namespace stagecoach {
namespace {

bool IsProgram(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::StatusOr<std::string> FindMpirun(const std::string& name) {
  if (absl::StrContains(name, "/")) {
    if (IsProgram(name)) return Absolute(name);
    return absl::NotFoundError(absl::StrCat("mpirun '", name, "' is no program that can be run"));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view directory : absl::StrSplit(path != nullptr ? path : "", ':', absl::SkipEmpty())) {
    const std::string candidate = absl::StrCat(directory, "/", name);
    if (IsProgram(candidate)) return Absolute(candidate);
  }
  return absl::NotFoundError(
      absl::StrCat("no '", name, "' in PATH; install Open MPI (Debian: apt install openmpi-bin)"));
}

absl::StatusOr<std::string> FindCoordinator(const std::string& path) {
  if (!path.empty()) return Absolute(path);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("cannot find the path of this program: ", error.message()));
  return self.string();
}

// Whether the user's arguments set an MCA parameter, or give an option such as --bind-to.
bool UserSetsMca(const LaunchPlan& plan, absl::string_view name) {
  for (size_t i = 0; i + 1 < plan.mpirun_args.size(); ++i) {
    const std::string& word = plan.mpirun_args[i];
    if ((word == "--mca" || word == "-mca" || word == "--gmca" || word == "-gmca") && plan.mpirun_args[i + 1] == name)
      return true;
  }
  return false;
}

bool UserGives(const LaunchPlan& plan, absl::string_view option) {
  return std::any_of(plan.mpirun_args.begin(), plan.mpirun_args.end(), [&](absl::string_view word) {
    return absl::StartsWith(word, "-") && absl::StripPrefix(absl::StripPrefix(word, "-"), "-") == option;
  });
}

using McaSettings = std::vector<std::pair<std::string, std::string>>;

McaSettings McaFor(const LaunchPlan& plan, const LaunchPlaces& places) {
  // Ranks that wait yield their core; mpirun kills at once what must end, or a relaunch would wait for its ladder of
  // signals.
  McaSettings mca = {{"mpi_yield_when_idle", "1"}, {"odls_base_sigkill_timeout", "0"}, {"pml", "ob1"}};
  if (plan.placement.hosts.empty()) {
    // Shared memory alone: no port is opened by a rank. All files in directories that we remove.
    mca.insert(mca.end(), {{"btl", "vader,self"},
                           {"orte_tmpdir_base", places.directory},
                           {"btl_vader_backing_directory", places.shared_directory}});
    return mca;
  }
  mca.push_back({"btl", "vader,tcp,self"});
  if (!plan.networks.empty()) {
    mca.push_back({"btl_tcp_if_include", plan.networks});
    mca.push_back({"oob_tcp_if_include", plan.networks});
  }
  // A host that loses power is noticed in seconds, not in eight minutes; messages up to 1 MiB take one trip.
  mca.insert(mca.end(), {{"oob_tcp_keepalive_time", "5"},
                         {"oob_tcp_keepalive_intvl", "2"},
                         {"oob_tcp_keepalive_probes", "3"},
                         {"btl_tcp_eager_limit", "1048576"},
                         {"btl_tcp_rndv_eager_limit", "1048576"},
                         {"btl_tcp_max_send_size", "2097152"}});
  return mca;
}

// One program of the line, on a host. The backing directory exists on this host only, so it is given to the ranks of
// this host alone.
void AppendPlace(const std::string& host, int ranks, bool here, const LaunchPlaces& places,
                 std::vector<std::string>* line) {
  line->insert(line->end(), {"-n", absl::StrCat(ranks), "--host", absl::StrCat(host, ":", ranks)});
  if (!here) return;
  line->insert(line->end(), {"-x", absl::StrCat("OMPI_MCA_btl_vader_backing_directory=", places.shared_directory)});
}

void AppendCoordinator(const LaunchPlan& plan, const LaunchPlaces& places, std::vector<std::string>* line) {
  if (plan.placement.hosts.empty()) {
    line->insert(line->end(), {"-n", "1"});
  } else {
    AppendPlace("localhost", 1, /*here=*/true, places, line);
  }
  line->insert(line->end(), {plan.coordinator, "engine", "--connect", places.socket(), "--cleanup", places.directory});
  if (places.shared_directory != places.directory) line->insert(line->end(), {"--cleanup", places.shared_directory});
}

}  // namespace

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
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no program stage_worker; tried ", absl::StrJoin(candidates, ", "),
                                          "; give its path with `stage_worker_path`"));
}

absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchOptions& options) {
  LaunchPlan plan;
  ASSIGN_OR_RETURN(plan.mpirun, FindMpirun(options.mpirun_path));
  ASSIGN_OR_RETURN(plan.coordinator, FindCoordinator(options.coordinator_path));
  ASSIGN_OR_RETURN(plan.stage_worker, FindStageWorker(options));
  absl::StatusOr<std::vector<std::string>> words = SplitShellWords(options.mpirun_args);
  if (!words.ok()) return absl::InvalidArgumentError(absl::StrCat("`mpirun_args`: ", words.status().message()));
  plan.mpirun_args = *std::move(words);
  ASSIGN_OR_RETURN(plan.placement, PlaceStages(options));
  std::vector<std::string> others;
  for (const PlacedStages& placed : plan.placement.hosts) {
    if (!placed.here) others.push_back(placed.host);
  }
  plan.networks = NetworksTowards(others);
  return plan;
}

std::vector<std::string> LaunchArguments(const LaunchPlan& plan, const LaunchPlaces& places) {
  std::vector<std::string> line = {plan.mpirun};
  if (!UserGives(plan, "bind-to")) line.insert(line.end(), {"--bind-to", "none"});
  if (!UserGives(plan, "nooversubscribe")) line.push_back("--oversubscribe");
  for (const auto& [name, value] : McaFor(plan, places)) {
    if (!UserSetsMca(plan, name)) line.insert(line.end(), {"--mca", name, value});
  }
  line.insert(line.end(), plan.mpirun_args.begin(), plan.mpirun_args.end());
  AppendCoordinator(plan, places, &line);
  if (plan.placement.hosts.empty()) {
    line.insert(line.end(), {":", "-n", absl::StrCat(plan.placement.stages), plan.stage_worker});
  }
  for (const PlacedStages& placed : plan.placement.hosts) {
    line.push_back(":");
    AppendPlace(placed.host, placed.stages, placed.here, places, &line);
    line.push_back(plan.stage_worker);
  }
  return line;
}

absl::StatusOr<std::string> DescribeLaunch(const LaunchOptions& options) {
  ASSIGN_OR_RETURN(const LaunchPlan plan, ResolveLaunch(options));
  return JoinShellWords(LaunchArguments(plan, {"/tmp/stagecoach.XXXXXX", "/dev/shm/stagecoach.XXXXXX"}));
}

}  // namespace stagecoach
