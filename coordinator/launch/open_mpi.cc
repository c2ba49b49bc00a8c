#include "coordinator/launch/open_mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/wire/host_report.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/launch/shell_words.h"
#include "coordinator/launch/slurm.h"

namespace stagecoach {
namespace {

constexpr size_t kMinDashes = 20;

bool IsDashes(absl::string_view line) {
  return line.size() >= kMinDashes && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

// "[host:1234] ...", "[host:01234] ..."
bool IsFromOpenMpi(absl::string_view line) {
  if (line.empty() || line[0] != '[') return false;
  const size_t end = line.find(']');
  if (end == absl::string_view::npos) return false;
  const size_t colon = line.rfind(':', end);
  if (colon == absl::string_view::npos || colon < 2 || colon + 1 == end) return false;
  const absl::string_view pid = line.substr(colon + 1, end - colon - 1);
  return std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
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

Networks NetworksOf(const Placement& placement, const std::string& otherwise) {
  return placement.networks.empty() ? Networks{.include = otherwise} : placement.networks;
}

class OpenMpi : public LauncherBackend {
 public:
  explicit OpenMpi(OpenMpiOptions options) : options_(std::move(options)) {}

  const char* name() const override { return "mpirun"; }
  bool RanksAreOfItsSession() const override { return true; }

  std::vector<std::string> Arguments(const JobPrograms& programs, const Placement& placement,
                                     const LaunchPlaces& places) const override {
    std::vector<std::string> line = {options_.mpirun};
    if (!Gives("bind-to")) line.insert(line.end(), {"--bind-to", "none"});
    if (!Gives("nooversubscribe")) line.push_back("--oversubscribe");
    const std::vector<std::string>& of_networks = NetworkSettingNames();
    const bool own_interfaces = std::any_of(of_networks.begin(), of_networks.end(), [&](const std::string& name) {
      return ChoosesInterfaces(name) && !Setting(name).empty();
    });
    for (const auto& [name, value] : Settings(programs, placement, places)) {
      if (Mca(name) == nullptr && !(own_interfaces && ChoosesInterfaces(name))) {
        line.insert(line.end(), {"--mca", name, value});
      }
    }
    line.insert(line.end(), options_.arguments.begin(), options_.arguments.end());
    const bool here = placement.AllHere();
    AppendPlace("localhost", 1, here, &line);
    line.insert(line.end(),
                {programs.coordinator, "engine", "--connect", places.socket(), "--cleanup", places.directory});
    if (places.shared_directory != places.directory) line.insert(line.end(), {"--cleanup", places.shared_directory});
    for (const PlacedStages& placed : placement.hosts) {
      line.push_back(":");
      AppendPlace(placed.host, placed.stages, here, &line);
      line.push_back(programs.stage_worker);
      if (!placed.model.empty()) line.insert(line.end(), {"--model", placed.model});
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
    if (agent.empty()) return SrunCommand(options_.srun, host, command);
    std::vector<std::string> line = absl::StrSplit(agent, ' ', absl::SkipEmpty());
    const std::string arguments = Setting("plm_rsh_args");
    for (const absl::string_view word : absl::StrSplit(arguments, ' ', absl::SkipEmpty())) {
      line.push_back(std::string(word));
    }
    // The agent's own shell on that host splits the command.
    line.insert(line.end(), {host, JoinShellWords(command)});
    return line;
  }

  std::string OwnNetworks() const override {
    for (const std::string& name : NetworkSettingNames()) {
      if (const std::string value = Setting(name); !value.empty()) return absl::StrCat(name, "=", value);
    }
    return "";
  }

  std::unique_ptr<LauncherWords> Words() const override { return std::make_unique<OpenMpiWords>(); }

 private:
  McaSettings Settings(const JobPrograms& programs, const Placement& placement, const LaunchPlaces& places) const {
    // mpirun kills at once what must end, or a relaunch would wait for its ladder of signals.
    McaSettings settings = {{"odls_base_sigkill_timeout", "0"}, {"orte_tmpdir_base", places.directory}};
    if (placement.AllHere()) {
      // What a batch system or a host file of the site gives to mpirun, launch_plan.h has read; here it would put ranks
      // elsewhere.
      settings.insert(settings.end(),
                      {{"ras", "^slurm,gridengine,tm,lsf"}, {"plm", "isolated"}, {"orte_default_hostfile", "none"}});
    } else {
      // A host that loses power is noticed in seconds, not in eight minutes.
      settings.insert(
          settings.end(),
          {{"oob_tcp_keepalive_time", "5"}, {"oob_tcp_keepalive_intvl", "2"}, {"oob_tcp_keepalive_probes", "3"}});
      const McaSettings networks = NetworkSettings("oob_tcp", NetworksOf(placement, options_.networks));
      settings.insert(settings.end(), networks.begin(), networks.end());
      if (!options_.rsh_agent.empty()) settings.push_back({"plm_rsh_agent", options_.rsh_agent});
    }
    if (const std::string agent = LaunchAgent(programs, places); !placement.AllHere() && !agent.empty()) {
      settings.push_back({"orte_launch_agent", agent});
    }
    const McaSettings ranks = RankSettings(placement, places, options_.networks);
    settings.insert(settings.end(), ranks.begin(), ranks.end());
    return settings;
  }

  static void AppendPlace(const std::string& host, int ranks, bool all_here, std::vector<std::string>* line) {
    line->insert(line->end(), {"-n", absl::StrCat(ranks)});
    if (!all_here) line->insert(line->end(), {"--host", absl::StrCat(host, ":", ranks)});
  }

  // The value the user's arguments give to an MCA parameter, nullptr when they do not; whether they give an option such
  // as --bind-to.
  const std::string* Mca(absl::string_view name) const {
    for (size_t i = 0; i + 2 < options_.arguments.size(); ++i) {
      const std::string& word = options_.arguments[i];
      const bool sets = word == "--mca" || word == "-mca" || word == "--gmca" || word == "-gmca";
      if (sets && options_.arguments[i + 1] == name) return &options_.arguments[i + 2];
    }
    return nullptr;
  }
  bool Gives(absl::string_view option) const {
    return std::any_of(options_.arguments.begin(), options_.arguments.end(), [&](absl::string_view word) {
      return absl::StartsWith(word, "-") && absl::StripPrefix(absl::StripPrefix(word, "-"), "-") == option;
    });
  }
  // What the user set it to, on the command line or else by a variable; empty: nothing.
  std::string Setting(const std::string& name) const {
    if (const std::string* value = Mca(name); value != nullptr) return *value;
    const char* value = std::getenv(absl::StrCat("OMPI_MCA_", name).c_str());
    return value != nullptr ? value : "";
  }

  // The remote shell that mpirun will take; empty: srun.
  std::string Agent() const {
    if (!options_.rsh_agent.empty() && Mca("plm_rsh_agent") == nullptr) return options_.rsh_agent;
    for (const char* name : {"plm_rsh_agent", "orte_rsh_agent", "pls_rsh_agent"}) {  // one setting
      const std::string agent = Setting(name);
      if (!agent.empty()) return FirstThatIsThere(agent);
    }
    return options_.srun.empty() ? "ssh" : "";
  }

  const OpenMpiOptions options_;
};

}  // namespace

void SetVariable(const std::string& name, const std::string& value, std::vector<std::string>* environment) {
  std::erase_if(*environment, [&](const std::string& variable) { return absl::StartsWith(variable, name + "="); });
  environment->push_back(absl::StrCat(name, "=", value));
}

McaSettings RankSettings(const Placement& placement, const LaunchPlaces& places, const std::string& networks) {
  // Ranks that wait yield their core.
  McaSettings settings = {
      {"mpi_yield_when_idle", "1"}, {"pml", "ob1"}, {"btl_vader_backing_directory", places.shared_directory}};
  if (placement.AllHere()) {
    settings.push_back({"btl", "vader,self"});  // shared memory alone: no port is opened by a rank
    return settings;
  }
  settings.push_back({"btl", "vader,tcp,self"});
  const McaSettings chosen = NetworkSettings("btl_tcp", NetworksOf(placement, networks));
  settings.insert(settings.end(), chosen.begin(), chosen.end());
  // Messages up to 1 MiB take one trip.
  settings.insert(settings.end(), {{"btl_tcp_eager_limit", "1048576"},
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

bool ChoosesInterfaces(absl::string_view name) {
  return (absl::StartsWith(name, "btl_tcp_") || absl::StartsWith(name, "oob_tcp_")) &&
         (absl::StrContains(name, "_if_") || absl::StrContains(name, "_disable_"));
}

const std::vector<std::string>& NetworkSettingNames() {
  static const auto* names = new std::vector<std::string>{
      "btl_tcp_if_include",          "btl_tcp_if_exclude",          "btl_tcp_disable_family",
      "btl_tcp_port_min_v4",         "btl_tcp_port_range_v4",       "btl_tcp_port_min_v6",
      "btl_tcp_port_range_v6",       "oob_tcp_if_include",          "oob_tcp_if_exclude",
      "oob_tcp_disable_ipv4_family", "oob_tcp_disable_ipv6_family", "oob_tcp_static_ipv4_ports",
      "oob_tcp_static_ipv6_ports",   "oob_tcp_dynamic_ipv4_ports",  "oob_tcp_dynamic_ipv6_ports"};
  return *names;
}

std::unique_ptr<const LauncherBackend> MakeOpenMpi(OpenMpiOptions options) {
  return std::make_unique<OpenMpi>(std::move(options));
}

bool OpenMpiWords::Take(const std::string& line) {
  const bool dashes = IsDashes(line);
  if (dashes) in_block_ = !in_block_;
  if (in_block_) ReadDeath(line);
  return !dashes && !in_block_ && !IsFromOpenMpi(line);
}

void OpenMpiWords::ReadDeath(const std::string& line) {
  int rank = 0, job = 0, code = 0;
  char host[256] = {};
  char signal[64] = {};
  const size_t start = line.find("process rank ");
  if (start != std::string::npos &&
      std::sscanf(line.c_str() + start, "process rank %d with PID %*d on node %255s exited on signal %63[^.]", &rank,
                  host, signal) == 3) {
    Found({rank, absl::StrCat("on ", host, " was ended by signal ", signal), IsCrashSignal(std::atoi(signal))});
  } else if (std::sscanf(line.c_str(), " Process name: [[%d,%*d],%d]", &job, &rank) == 2) {
    exiting_rank_ = rank;
  } else if (exiting_rank_ >= 0 && std::sscanf(line.c_str(), " Exit code: %d", &code) == 1) {
    Found({exiting_rank_, absl::StrCat("ended with exit code ", code)});
  }
}

}  // namespace stagecoach
