#include "coordinator/launch/slurm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_info.h"
#include "common/base/status_macros.h"
#include "coordinator/launch/local_host.h"
#include "coordinator/launch/open_mpi.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/launch/shell_words.h"

namespace stagecoach {
namespace {

constexpr absl::Duration kSlurmAnswers = absl::Seconds(20);
constexpr int kMostTasks = 65536;

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Whether the user has set this MCA parameter.
bool IsSet(const std::string& name) {
  const char* value = std::getenv(absl::StrCat("OMPI_MCA_", name).c_str());
  return value != nullptr && *value != '\0';
}

// This node's name among Slurm's: rank 0 must come to lie here. Where Slurm does not tell (in the shell of salloc on a
// node of the allocation), it is the host's own up to the first dot, as where nobody chose others.
std::string OwnNode(const Placement& placement) {
  if (const char* name = Variable("SLURMD_NODENAME"); name[0] != '\0') return name;
  for (const PlacedStages& placed : placement.hosts) {
    if (placed.here && placed.host != "localhost") return placed.host;
  }
  const std::string host = HostName();
  return host.substr(0, host.find('.'));
}

// Words of srun for how a task ended that are a program's own doing.
bool IsCrash(absl::string_view how) {
  for (const char* word :
       {"Segmentation fault", "Aborted", "Illegal instruction", "Floating point exception", "Trace/breakpoint trap"}) {
    if (absl::StartsWith(how, word)) return true;
  }
  return false;
}

class Slurm : public LauncherBackend {
 public:
  explicit Slurm(SlurmOptions options) : options_(std::move(options)) {}

  const char* name() const override { return "srun"; }
  bool RanksAreOfItsSession() const override { return false; }  // they are Slurm's, and outlive an srun that is killed

  std::vector<std::string> Arguments(const JobPrograms& programs, const Placement& placement,
                                     const LaunchPlaces& places) const override {
    std::vector<std::string> line = {options_.srun, "--mpi=pmix", absl::StrCat("--ntasks=", placement.stages() + 1)};
    // Each task lies where the host file of WriteFiles says; the step shares what the allocation has, with other steps
    // and among its tasks, and our own plan binds threads to CPUs. The tasks get our environment also in a job that was
    // submitted without one (SLURM_EXPORT_ENV): their settings are in it, and the name by which they are found.
    line.insert(line.end(), {"--distribution=arbitrary", "--overlap", "--overcommit", "--cpu-bind=none",
                             "--kill-on-bad-exit=1", "--unbuffered", "--export=ALL"});
    line.insert(line.end(), options_.arguments.begin(), options_.arguments.end());
    // The role comes from the program: one shell that starts the right one in each task, which works in any allocation.
    std::vector<std::string> rank_zero = {programs.coordinator, "engine",    "--connect",
                                          places.socket(),      "--cleanup", places.directory};
    if (places.shared_directory != places.directory) {
      rank_zero.insert(rank_zero.end(), {"--cleanup", places.shared_directory});
    }
    std::string script = absl::StrCat("case $SLURM_PROCID in 0) exec ", JoinShellWords(rank_zero), ";; ");
    int rank = 1;
    for (const PlacedStages& placed : placement.hosts) {
      std::vector<std::string> stage = {programs.stage_worker};
      if (!placed.model.empty()) stage.insert(stage.end(), {"--model", placed.model});
      std::vector<int> ranks;
      for (int i = 0; i < placed.stages; ++i) ranks.push_back(rank++);
      absl::StrAppend(&script, absl::StrJoin(ranks, "|"), ") exec ", JoinShellWords(stage), ";; ");
    }
    line.insert(line.end(), {"/bin/sh", "-c", script + "esac"});
    return line;
  }

  void SetEnvironment(const Placement& placement, const LaunchPlaces& places,
                      std::vector<std::string>* environment) const override {
    SetVariable("SLURM_HOSTFILE", HostFile(places), environment);
    const std::vector<std::string>& of_networks = NetworkSettingNames();
    const bool own_interfaces = std::any_of(of_networks.begin(), of_networks.end(), [&](const std::string& name) {
      return ChoosesInterfaces(name) && IsSet(name);
    });
    for (const auto& [name, value] : RankSettings(placement, places, options_.networks)) {
      if (own_interfaces && ChoosesInterfaces(name)) continue;
      const std::string variable = absl::StrCat("OMPI_MCA_", name);
      const bool users = std::any_of(environment->begin(), environment->end(),
                                     [&](const std::string& entry) { return absl::StartsWith(entry, variable + "="); });
      if (!users) SetVariable(variable, value, environment);
    }
  }

  absl::Status WriteFiles(const Placement& placement, const LaunchPlaces& places) const override {
    std::ofstream file(HostFile(places));
    const std::string own = OwnNode(placement);
    file << own << "\n";
    for (const PlacedStages& placed : placement.hosts) {
      for (int i = 0; i < placed.stages; ++i) file << (placed.here ? own : placed.host) << "\n";
    }
    file.close();
    if (file.good()) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("cannot write '", HostFile(places), "'"));
  }

  std::vector<std::string> RemoteCommand(const std::string& host,
                                         const std::vector<std::string>& command) const override {
    return SrunCommand(options_.srun, host, command);
  }

  std::string OwnNetworks() const override {
    for (const std::string& name : NetworkSettingNames()) {
      if (IsSet(name)) return absl::StrCat(name, "=", std::getenv(absl::StrCat("OMPI_MCA_", name).c_str()));
    }
    return "";
  }

  std::unique_ptr<LauncherWords> Words() const override { return std::make_unique<SlurmWords>(); }

 private:
  static std::string HostFile(const LaunchPlaces& places) { return absl::StrCat(places.directory, "/hosts"); }

  const SlurmOptions options_;
};

// An allocation of this node alone. Without tasks any number of stages may run here.
std::vector<HostSlots> OneNode(int tasks) {
  if (tasks == 0) return {};
  return {{.name = "localhost", .slots = tasks}};
}

}  // namespace

std::unique_ptr<const LauncherBackend> MakeSlurm(SlurmOptions options) {
  return std::make_unique<Slurm>(std::move(options));
}

std::vector<std::string> SrunCommand(const std::string& srun, const std::string& host,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> line = {srun,         "--overlap",       "--nodes=1",    "--ntasks=1",
                                   "--mpi=none", "--cpu-bind=none", "--unbuffered", "--nodelist=" + host};
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

bool InSlurmAllocation() { return Variable("SLURM_JOB_ID")[0] != '\0'; }

bool OffersPmix(const std::string& srun) {
  const absl::StatusOr<ProgramOutput> plugins = RunForOutput({srun, "--mpi=list"}, kSlurmAnswers);
  if (!plugins.ok() || plugins->exit_code != 0) return false;
  for (const absl::string_view word : absl::StrSplit(plugins->text, absl::ByAnyChar(" \t\n,"), absl::SkipEmpty())) {
    if (word == "pmix") return true;
  }
  return false;
}

absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text) {
  std::vector<int> tasks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> item = absl::StrSplit(part, absl::MaxSplits("(x", 1));
    int count = 0, nodes = 1;
    const bool repeated = item.first.size() < part.size();
    const bool good = absl::SimpleAtoi(item.first, &count) && count >= 1 && count <= kMostTasks &&
                      (!repeated || (absl::EndsWith(item.second, ")") &&
                                     absl::SimpleAtoi(absl::StripSuffix(item.second, ")"), &nodes) && nodes >= 1 &&
                                     nodes <= kMostTasks));
    if (!good || tasks.size() + static_cast<size_t>(nodes) > kMostTasks) {
      return absl::InvalidArgumentError(
          absl::StrCat("tasks of each node are '", text, "', expected numbers such as 2(x3),1"));
    }
    tasks.insert(tasks.end(), static_cast<size_t>(nodes), count);
  }
  return tasks;
}

absl::StatusOr<std::vector<HostSlots>> HostsOfAllocation() {
  const std::string nodes = Variable("SLURM_JOB_NODELIST");
  if (nodes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("SLURM_JOB_ID is set (", Variable("SLURM_JOB_ID"),
                     "), but SLURM_JOB_NODELIST, which every Slurm allocation has, is not; unset SLURM_JOB_ID where "
                     "this is none, or name the hosts by `hosts`"));
  }
  // Without a number of tasks Slurm counts one for each CPU. A step's are not the allocation's.
  const bool asked = Variable("SLURM_STEP_ID")[0] == '\0' &&
                     (Variable("SLURM_NTASKS")[0] != '\0' || Variable("SLURM_NTASKS_PER_NODE")[0] != '\0');
  const absl::StatusOr<std::vector<int>> tasks = ParseTasksPerNode(Variable("SLURM_TASKS_PER_NODE"));
  // No question for scontrol, which a container may lack.
  if (nodes == Variable("SLURMD_NODENAME")) return OneNode(asked && tasks.ok() ? tasks->front() : 0);
  const absl::StatusOr<ProgramOutput> names = RunForOutput({"scontrol", "show", "hostnames", nodes}, kSlurmAnswers);
  if (!names.ok() || names->exit_code != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("`scontrol show hostnames ", nodes, "` does not tell the nodes of this Slurm allocation: ",
                     names.ok() ? names->text : std::string(names.status().message()),
                     "; name them with `hosts`, or unset SLURM_JOB_ID where that allocation is over"));
  }
  std::vector<HostSlots> hosts;
  for (const absl::string_view line : absl::StrSplit(names->text, '\n', absl::SkipWhitespace())) {
    HostSlots host;
    host.name = std::string(absl::StripAsciiWhitespace(line));
    hosts.push_back(std::move(host));
  }
  for (size_t i = 0; asked && tasks.ok() && i < std::min(tasks->size(), hosts.size()); ++i) {
    hosts[i].slots = (*tasks)[i];
  }
  const bool among = std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& host) {
    return host.name == Variable("SLURMD_NODENAME") || IsThisHost(host.name);
  });
  if (among && hosts.size() == 1) return OneNode(asked && tasks.ok() ? tasks->front() : 0);
  if (among) return hosts;
  return absl::FailedPreconditionError(absl::StrCat(
      "this host is none of the Slurm allocation's (", nodes,
      "), and the coordinator starts its first rank where it runs; start it on one of them: from a batch script, or by "
      "`srun --pty --nodes=1 --ntasks=1 --overlap`"));
}

bool SlurmWords::Take(const std::string& line) {
  if (!absl::StartsWith(line, "srun:") && !absl::StartsWith(line, "slurmstepd:")) return true;
  char host[256] = {};
  int rank = 0, read = 0;
  // "srun: error: node2: task 3: Killed", "srun: error: node2: task 1: Exited with exit code 7"
  if (std::sscanf(line.c_str(), "srun: error: %255[^:]: task %d: %n", host, &rank, &read) == 2 && read > 0) {
    const std::string how = line.substr(static_cast<size_t>(read));
    Found({rank, absl::StrCat("on ", host, " ended: ", how), IsCrash(how)});
  }
  // Of tasks that ended alike, "srun: error: node[2-3]: tasks 1,3-4: Killed"
  read = 0;
  if (std::sscanf(line.c_str(), "srun: error: %255[^:]: tasks %d%*[0-9,-]: %n", host, &rank, &read) == 2 && read > 0) {
    const std::string how = line.substr(static_cast<size_t>(read));
    Found({rank, absl::StrCat("on ", host, " ended, as others did: ", how), IsCrash(how)});
  }
  return false;
}

}  // namespace stagecoach
