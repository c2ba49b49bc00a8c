#include "coordinator/launch/launcher_backend.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/host/host_info.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

// The settings of networks and ports.
constexpr const char* kNetworkSettings[] = {
    "btl_tcp_if_include",          "btl_tcp_if_exclude",          "btl_tcp_disable_family",
    "btl_tcp_port_min_v4",         "btl_tcp_port_range_v4",       "btl_tcp_port_min_v6",
    "btl_tcp_port_range_v6",       "oob_tcp_if_include",          "oob_tcp_if_exclude",
    "oob_tcp_disable_ipv4_family", "oob_tcp_disable_ipv6_family", "oob_tcp_static_ipv4_ports",
    "oob_tcp_static_ipv6_ports",   "oob_tcp_dynamic_ipv4_ports",  "oob_tcp_dynamic_ipv6_ports"};

// Of these, one that chooses interfaces or families of addresses.
bool ChoosesInterfaces(absl::string_view name) {
  return (absl::StartsWith(name, "btl_tcp_") || absl::StartsWith(name, "oob_tcp_")) &&
         (absl::StrContains(name, "_if_") || absl::StrContains(name, "_disable_"));
}

// Sets NAME=value, in place of what was there.
void SetVariable(const std::string& name, const std::string& value, std::vector<std::string>* environment) {
  std::erase_if(*environment, [&](const std::string& variable) { return absl::StartsWith(variable, name + "="); });
  environment->push_back(absl::StrCat(name, "=", value));
}

void AppendTo(std::vector<std::string>* line, const std::vector<std::string>& words) {
  line->insert(line->end(), words.begin(), words.end());
}
void AppendTo(McaSettings* settings, const McaSettings& more) {
  settings->insert(settings->end(), more.begin(), more.end());
}

std::vector<std::string> RankZero(const JobPrograms& programs, const LaunchPlaces& places) {
  std::vector<std::string> words = {programs.coordinator, "engine",    "--connect",
                                    places.socket(),      "--cleanup", places.directory};
  if (places.shared_directory != places.directory) AppendTo(&words, {"--cleanup", places.shared_directory});
  return words;
}

std::vector<std::string> StageRank(const JobPrograms& programs, const PlacedStages& placed) {
  std::vector<std::string> words = {programs.stage_worker};
  if (!placed.model.empty()) AppendTo(&words, {"--model", placed.model});
  return words;
}

// argv that runs a command on a node of this allocation.
std::vector<std::string> SrunCommand(const std::string& srun, const std::string& host,
                                     const std::vector<std::string>& command) {
  std::vector<std::string> line = {srun,         "--overlap",       "--nodes=1",    "--ntasks=1",
                                   "--mpi=none", "--cpu-bind=none", "--unbuffered", "--nodelist=" + host};
  AppendTo(&line, command);
  return line;
}

// What runs on another host in the place of orted: orted, and after its end a cleaning of that host, which the front
// may not reach any more. Open MPI splits it at blanks, whatever the quotes, and then it goes through a shell.
std::string LaunchAgent(const JobPrograms& programs, const LaunchPlaces& places) {
  if (JoinShellWords({programs.stage_worker}) != programs.stage_worker) return "";
  return absl::StrCat(programs.stage_worker, " ", kHostGuardFlag, " ", places.name(), " orted");
}

// Of "ssh -x : rsh": the first whose program there is.
std::string FirstThatIsThere(const std::string& agents) {
  for (const absl::string_view agent : absl::StrSplit(agents, ':')) {
    const std::vector<std::string> words = absl::StrSplit(agent, ' ', absl::SkipEmpty());
    if (!words.empty() && FindProgram(words.front()).ok()) return std::string(agent);
  }
  return agents;
}

class OpenMpi : public LauncherBackend {
 public:
  using LauncherBackend::LauncherBackend;

  const char* name() const override { return "mpirun"; }
  bool RanksInItsSession() const override { return true; }

  std::vector<std::string> Arguments(const JobPrograms& programs, const Placement& placement,
                                     const LaunchPlaces& places) const override {
    std::vector<std::string> line = {setup_.program};
    if (!Gives("bind-to")) AppendTo(&line, {"--bind-to", "none"});
    if (!Gives("nooversubscribe")) line.push_back("--oversubscribe");
    for (const auto& [name, value] : WithoutUserConflicts(Settings(programs, placement, places))) {
      if (Mca(name) == nullptr) AppendTo(&line, {"--mca", name, value});
    }
    AppendTo(&line, setup_.arguments);
    const bool here = placement.AllHere();
    AppendPlace("localhost", 1, here, &line);
    AppendTo(&line, RankZero(programs, places));
    for (const PlacedStages& placed : placement.hosts) {
      line.push_back(":");
      AppendPlace(placed.host, placed.stages, here, &line);
      AppendTo(&line, StageRank(programs, placed));
    }
    return line;
  }

  void SetEnvironment(const Placement&, const LaunchPlaces&, std::vector<std::string>* environment) const override {
    if (geteuid() != 0) return;
    SetVariable("OMPI_ALLOW_RUN_AS_ROOT", "1", environment);
    SetVariable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", environment);
  }

  absl::Status WriteFiles(const Placement&, const LaunchPlaces&) const override { return absl::OkStatus(); }

  std::vector<std::string> RemoteCommand(const std::string& host,
                                         const std::vector<std::string>& command) const override {
    const std::string agent = Agent();
    if (agent.empty()) return SrunCommand(setup_.srun, host, command);
    std::vector<std::string> line = absl::StrSplit(agent, ' ', absl::SkipEmpty());
    AppendTo(&line, absl::StrSplit(Setting("plm_rsh_args"), ' ', absl::SkipEmpty()));
    AppendTo(&line, {host, JoinShellWords(command)});  // the agent's own shell on that host splits it
    return line;
  }

  std::unique_ptr<LauncherParser> MakeParser() const override { return std::make_unique<OpenMpiParser>(); }

 private:
  McaSettings Settings(const JobPrograms& programs, const Placement& placement, const LaunchPlaces& places) const {
    // mpirun kills at once what must end, or a relaunch would wait for its ladder of signals.
    McaSettings settings = {{"odls_base_sigkill_timeout", "0"}, {"orte_tmpdir_base", places.directory}};
    if (placement.AllHere()) {
      // What a batch system or a host file of the site gives to mpirun, launch_plan.h has read; here it would misplace
      // ranks.
      AppendTo(&settings,
               {{"ras", "^slurm,gridengine,tm,lsf"}, {"plm", "isolated"}, {"orte_default_hostfile", "none"}});
    } else {
      // A host that loses power is noticed in seconds, not in eight minutes.
      AppendTo(&settings,
               {{"oob_tcp_keepalive_time", "5"}, {"oob_tcp_keepalive_intvl", "2"}, {"oob_tcp_keepalive_probes", "3"}});
      AppendTo(&settings, NetworkSettings("oob_tcp", NetworksOf(placement)));
      if (!setup_.rsh_agent.empty()) settings.push_back({"plm_rsh_agent", setup_.rsh_agent});
      const std::string agent = LaunchAgent(programs, places);
      if (!agent.empty()) settings.push_back({"orte_launch_agent", agent});
    }
    AppendTo(&settings, RankSettings(placement, places));
    return settings;
  }

  static void AppendPlace(const std::string& host, int ranks, bool all_here, std::vector<std::string>* line) {
    AppendTo(line, {"-n", absl::StrCat(ranks)});
    if (!all_here) AppendTo(line, {"--host", absl::StrCat(host, ":", ranks)});
  }

  // The value the user's arguments give to an MCA parameter, or nullptr; whether they give an option.
  const std::string* Mca(absl::string_view name) const {
    for (size_t i = 0; i + 2 < setup_.arguments.size(); ++i) {
      const std::string& word = setup_.arguments[i];
      const bool sets = word == "--mca" || word == "-mca" || word == "--gmca" || word == "-gmca";
      if (sets && setup_.arguments[i + 1] == name) return &setup_.arguments[i + 2];
    }
    return nullptr;
  }
  bool Gives(absl::string_view option) const {
    return std::any_of(setup_.arguments.begin(), setup_.arguments.end(), [&](absl::string_view word) {
      return absl::StartsWith(word, "-") && absl::StripPrefix(absl::StripPrefix(word, "-"), "-") == option;
    });
  }
  // On the command line, or else by a variable.
  std::string Setting(const std::string& name) const override {
    const std::string* value = Mca(name);
    return value != nullptr ? *value : Variable("OMPI_MCA_" + name);
  }

  // The remote shell that mpirun will take; empty: srun.
  std::string Agent() const {
    if (!setup_.rsh_agent.empty() && Mca("plm_rsh_agent") == nullptr) return setup_.rsh_agent;
    for (const char* name : {"plm_rsh_agent", "orte_rsh_agent", "pls_rsh_agent"}) {  // one setting
      const std::string agent = Setting(name);
      if (!agent.empty()) return FirstThatIsThere(agent);
    }
    return setup_.srun.empty() ? "ssh" : "";
  }
};

// This node's name among Slurm's: rank 0 must come to lie here. Where Slurm does not tell (in the shell of salloc on a
// node of the allocation), it is the host's own up to the first dot, as where nobody chose others.
std::string OwnNode(const Placement& placement) {
  if (std::string name = Variable("SLURMD_NODENAME"); !name.empty()) return name;
  for (const PlacedStages& placed : placement.hosts) {
    if (placed.here && placed.host != "localhost") return placed.host;
  }
  const std::string host = HostName();
  return host.substr(0, host.find('.'));
}

class Slurm : public LauncherBackend {
 public:
  using LauncherBackend::LauncherBackend;

  const char* name() const override { return "srun"; }
  bool RanksInItsSession() const override { return false; }  // they are Slurm's, and outlive an srun that is killed

  std::vector<std::string> Arguments(const JobPrograms& programs, const Placement& placement,
                                     const LaunchPlaces& places) const override {
    std::vector<std::string> line = {setup_.program, "--mpi=pmix", absl::StrCat("--ntasks=", placement.ranks())};
    // Each task lies where the host file of WriteFiles says; the step shares what the allocation has, with other steps
    // and among its tasks, and our own plan binds threads to CPUs. The tasks get our environment also in a job that was
    // submitted without one (SLURM_EXPORT_ENV): their settings are in it, and the name by which they are found.
    AppendTo(&line, {"--distribution=arbitrary", "--overlap", "--overcommit", "--cpu-bind=none", "--kill-on-bad-exit=1",
                     "--unbuffered", "--export=ALL"});
    AppendTo(&line, setup_.arguments);
    // The role comes from the program: one shell that starts the right one in each task, which works in any allocation.
    std::string script =
        absl::StrCat("case $SLURM_PROCID in 0) exec ", JoinShellWords(RankZero(programs, places)), ";; ");
    int rank = 1;
    for (const PlacedStages& placed : placement.hosts) {
      std::vector<int> ranks(static_cast<size_t>(placed.stages));
      std::iota(ranks.begin(), ranks.end(), rank);
      rank += placed.stages;
      absl::StrAppend(&script, absl::StrJoin(ranks, "|"), ") exec ", JoinShellWords(StageRank(programs, placed)),
                      ";; ");
    }
    AppendTo(&line, {"/bin/sh", "-c", script + "esac"});
    return line;
  }

  void SetEnvironment(const Placement& placement, const LaunchPlaces& places,
                      std::vector<std::string>* environment) const override {
    SetVariable("SLURM_HOSTFILE", HostFile(places), environment);
    for (const auto& [name, value] : WithoutUserConflicts(RankSettings(placement, places))) {
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
    return SrunCommand(setup_.program, host, command);
  }

  std::unique_ptr<LauncherParser> MakeParser() const override { return std::make_unique<SlurmParser>(); }

 private:
  static std::string HostFile(const LaunchPlaces& places) { return absl::StrCat(places.directory, "/hosts"); }
  std::string Setting(const std::string& name) const override { return Variable("OMPI_MCA_" + name); }
};

}  // namespace

std::unique_ptr<const LauncherBackend> MakeOpenMpi(LauncherSetup setup) {
  return std::make_unique<OpenMpi>(std::move(setup));
}

std::unique_ptr<const LauncherBackend> MakeSlurm(LauncherSetup setup) {
  return std::make_unique<Slurm>(std::move(setup));
}

std::string LauncherBackend::OwnNetworks() const {
  for (const char* name : kNetworkSettings) {
    if (const std::string value = Setting(name); !value.empty()) return absl::StrCat(name, "=", value);
  }
  return "";
}

Networks LauncherBackend::NetworksOf(const Placement& placement) const {
  return placement.networks.empty() ? Networks{.include = setup_.networks} : placement.networks;
}

McaSettings LauncherBackend::WithoutUserConflicts(McaSettings settings) const {
  const bool chosen = std::any_of(std::begin(kNetworkSettings), std::end(kNetworkSettings),
                                  [&](const char* name) { return ChoosesInterfaces(name) && !Setting(name).empty(); });
  if (chosen) std::erase_if(settings, [](const auto& setting) { return ChoosesInterfaces(setting.first); });
  return settings;
}

McaSettings LauncherBackend::RankSettings(const Placement& placement, const LaunchPlaces& places) const {
  // Ranks that wait yield their core.
  McaSettings settings = {
      {"mpi_yield_when_idle", "1"}, {"pml", "ob1"}, {"btl_vader_backing_directory", places.shared_directory}};
  if (placement.AllHere()) {
    settings.push_back({"btl", "vader,self"});  // shared memory alone: no port is opened by a rank
    return settings;
  }
  settings.push_back({"btl", "vader,tcp,self"});
  AppendTo(&settings, NetworkSettings("btl_tcp", NetworksOf(placement)));
  // Messages up to 1 MiB take one trip.
  AppendTo(&settings, {{"btl_tcp_eager_limit", "1048576"},
                       {"btl_tcp_rndv_eager_limit", "1048576"},
                       {"btl_tcp_max_send_size", "2097152"}});
  return settings;
}

McaSettings NetworkSettings(const std::string& layer, const Networks& networks) {
  McaSettings settings;
  if (!networks.include.empty()) settings.push_back({absl::StrCat(layer, "_if_include"), networks.include});
  if (!networks.exclude.empty()) settings.push_back({absl::StrCat(layer, "_if_exclude"), networks.exclude});
  if (networks.ipv6 && layer == "btl_tcp") settings.push_back({"btl_tcp_disable_family", "4"});
  if (networks.ipv6 && layer == "oob_tcp") settings.push_back({"oob_tcp_disable_ipv4_family", "1"});
  return settings;
}

}  // namespace stagecoach
