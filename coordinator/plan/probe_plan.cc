#include "coordinator/plan/probe_plan.h"

#include <algorithm>
#include <cstddef>

#include "common/wire/job_proto.h"

namespace stagecoach {
namespace {

HostFacts FactsOf(const pb::Hello& hello, const pb::ProbeHost& host) {
  HostFacts facts;
  facts.name = hello.host();
  facts.slots = 0;
  facts.cores = std::max(hello.allowed_cores(), 1);
  facts.memory_bytes = host.memory_bytes();
  facts.available_bytes = hello.available_memory_bytes();
  facts.huge_pages = host.huge_pages();
  for (auto isa = hello.isas().rbegin(); isa != hello.isas().rend(); ++isa) {
    facts.isas.push_back(InstructionSetName(static_cast<pb::InstructionSet>(*isa)));
  }
  std::vector<int> nodes;
  for (const pb::CpuPlace& cpu : hello.cpus()) nodes.push_back(cpu.node());
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  facts.numa_nodes = std::max<int>(static_cast<int>(nodes.size()), 1);
  facts.hardware_threads = std::max(hello.cpus_size(), facts.cores);
  return facts;
}

int IndexOf(const std::vector<HostFacts>& hosts, const std::string& name) {
  const auto found =
      std::find_if(hosts.begin(), hosts.end(), [&](const HostFacts& facts) { return facts.name == name; });
  return static_cast<int>(found - hosts.begin());
}

void TakeSpeeds(const pb::ProbedHost& probed, HostFacts* facts) {
  for (const pb::ProbeSpeed& speed : probed.speeds()) {
    facts->speeds.push_back(
        {speed.stages(), speed.threads(), speed.read_gbps(), speed.int8_gops(), speed.bf16_gops(), speed.f32_gops()});
  }
  SortSpeeds(&facts->speeds);
}

// As the probe chose them for its stages.
void SetMeasuredIsas(const pb::ProbeReport& report, const WantedIsa& wanted, HostProfile* profile) {
  if (report.hellos_size() < 1) return;
  const std::vector<pb::Hello> stages(report.hellos().begin() + 1, report.hellos().end());
  const absl::StatusOr<StageIsas> isas = ChooseIsas(stages, wanted);
  if (!isas.ok()) return;
  for (size_t s = 0; s < profile->stages.size() && s < isas->isas.size(); ++s) {
    HostFacts& host = profile->hosts[static_cast<size_t>(profile->stages[s].host)];
    if (!host.speeds.empty()) host.isa = InstructionSetName(isas->isas[s]);
  }
}

}  // namespace

std::vector<HostStages> GroupByHost(const std::vector<std::string>& hosts) {
  std::vector<HostStages> groups;
  for (size_t stage = 0; stage < hosts.size(); ++stage) {
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const HostStages& g) { return g.host == hosts[stage]; });
    if (found == groups.end()) found = groups.insert(groups.end(), {hosts[stage], {}});
    found->stages.push_back(static_cast<int>(stage));
  }
  return groups;
}

std::vector<std::vector<int>> LinkRounds(const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> rounds;
  const auto meets = [&](int one, int other) {  // whether the links behind two stages share a host
    for (const int a : {one, one + 1}) {
      for (const int b : {other, other + 1}) {
        if (hosts[static_cast<size_t>(a)] == hosts[static_cast<size_t>(b)]) return true;
      }
    }
    return false;
  };
  for (int stage = 0; stage + 1 < static_cast<int>(hosts.size()); ++stage) {
    auto round = std::find_if(rounds.begin(), rounds.end(), [&](const std::vector<int>& taken) {
      return std::none_of(taken.begin(), taken.end(), [&](int other) { return meets(stage, other); });
    });
    if (round == rounds.end()) round = rounds.insert(rounds.end(), std::vector<int>());
    round->push_back(stage);
  }
  return rounds;
}

std::vector<SpeedRun> SpeedRuns(int stages, int threads, int cores) {
  std::vector<SpeedRun> runs = {{1, threads}};
  if (cores != threads) runs.push_back({1, cores});
  for (int processes = 2; processes < stages; processes *= 2) runs.push_back({processes, threads});
  if (stages > 1) runs.push_back({stages, threads});
  return runs;
}

HostProfile ProfileOf(const pb::ProbeReport& report, const std::string& measured_at,
                      const std::optional<ProbedModel>& model, const WantedIsa& isa) {
  HostProfile profile;
  profile.measured_at = measured_at;
  for (const pb::ProbedStage& stage : report.stages()) {
    const pb::Hello& hello = report.hellos(stage.stage() + 1);
    const int host = IndexOf(profile.hosts, hello.host());
    if (host == static_cast<int>(profile.hosts.size())) profile.hosts.push_back(FactsOf(hello, stage.host()));
    HostFacts& facts = profile.hosts[static_cast<size_t>(host)];
    ++facts.slots;
    facts.available_bytes = std::min(facts.available_bytes, hello.available_memory_bytes());
    for (const pb::ProbeStepTime& step : stage.model().steps()) {
      facts.steps.push_back(
          {step.rows(), step.sequences(), step.context(), step.threads(), step.layer_us(), step.head_us()});
    }
    profile.stages.push_back({.host = host, .rank = stage.rank(), .threads = stage.threads()});
  }
  for (const pb::ProbedHost& probed : report.hosts()) {
    const int host = IndexOf(profile.hosts, probed.host());
    if (host < static_cast<int>(profile.hosts.size())) TakeSpeeds(probed, &profile.hosts[static_cast<size_t>(host)]);
  }
  SetMeasuredIsas(report, isa, &profile);
  profile.coordinator = IndexOf(profile.hosts, report.hellos(0).host());
  if (profile.coordinator == static_cast<int>(profile.hosts.size())) {
    profile.hosts.push_back(FactsOf(report.hellos(0), report.coordinator()));
  }
  for (const pb::ProbeLink& link : report.links()) {
    if (!link.error().empty()) continue;
    const auto host_of = [&](int stage) {
      return stage < 0 ? profile.coordinator : profile.stages[static_cast<size_t>(stage)].host;
    };
    profile.links.push_back({host_of(link.from_stage()), host_of(link.to_stage()), link.latency_us(),
                             link.bytes_per_s() * 8e-9, link.from_stage(), link.to_stage()});
    if (link.from_stage() != LinkFacts::kCoordinator) continue;
    profile.stages[static_cast<size_t>(link.to_stage())].clock_offset_us = link.clock_offset_us();
    profile.stages[static_cast<size_t>(link.to_stage())].clock_error_us = link.clock_error_us();
  }
  const bool timed = std::any_of(profile.hosts.begin(), profile.hosts.end(),
                                 [](const HostFacts& facts) { return !facts.steps.empty(); });
  if (!timed || !model.has_value()) return profile;
  profile.model = model;
  for (const pb::ProbedStage& stage : report.stages()) {
    if (stage.model().steps_size() > 0) profile.model->layer = stage.model().layer();
  }
  return profile;
}

}  // namespace stagecoach
