#include "coordinator/plan/cpu_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace stagecoach {
namespace {

// Hardware threads of each core, cores in the order of the first.
using Cores = std::vector<std::vector<int32_t>>;

Cores CoresOf(const pb::Hello& hello) {
  Cores cores;
  std::map<int32_t, size_t> index;
  for (const pb::CpuPlace& place : hello.cpus()) {
    const auto [at, added] = index.try_emplace(place.core(), cores.size());
    if (added) cores.emplace_back();
    cores[at->second].push_back(place.cpu());
  }
  return cores;
}

// What the CPU quota leaves of the cores; a rank that knows of no cores has told how many threads can run.
int32_t UsableCores(const pb::Hello& hello) {
  const size_t cores = CoresOf(hello).size();
  return cores == 0 ? hello.allowed_cores() : std::min(static_cast<int32_t>(cores), hello.allowed_cores());
}

std::set<int32_t> CpuSet(const pb::Hello& hello) {
  std::set<int32_t> cpus;
  for (const pb::CpuPlace& place : hello.cpus()) cpus.insert(place.cpu());
  return cpus;
}

// The stages of one host, as indices.
using Host = std::vector<size_t>;

bool ShareOneSet(const std::vector<pb::Hello>& stages, const Host& host) {
  const std::set<int32_t> first = CpuSet(stages[host[0]]);
  return std::all_of(host.begin(), host.end(), [&](size_t stage) { return CpuSet(stages[stage]) == first; });
}

// How many stages of the host may use a CPU of this one's, itself included.
int32_t Contenders(const std::vector<pb::Hello>& stages, const Host& host, size_t stage) {
  const std::set<int32_t> own = CpuSet(stages[stage]);
  return static_cast<int32_t>(std::count_if(host.begin(), host.end(), [&](size_t other) {
    const std::set<int32_t> cpus = CpuSet(stages[other]);
    return other == stage || own.empty() ||
           std::any_of(cpus.begin(), cpus.end(), [&](int32_t cpu) { return own.count(cpu) > 0; });
  }));
}

// Where `threads` threads run within a run of cores; empty when they do not fit, or would tie a lone thread to one CPU.
std::vector<int32_t> PlaceWithin(const Cores& run, int32_t threads) {
  std::vector<int32_t> cpus;
  size_t most = 0;
  for (const std::vector<int32_t>& core : run) most = std::max(most, core.size());
  for (size_t sibling = 0; sibling < most; ++sibling) {
    for (const std::vector<int32_t>& core : run) {
      if (sibling < core.size()) cpus.push_back(core[sibling]);
    }
  }
  const size_t wanted = static_cast<size_t>(threads);
  if (wanted > cpus.size() || cpus.size() == 1) return {};
  if (wanted > 1 && wanted >= run.size()) cpus.resize(wanted);
  return cpus;
}

void BindHost(const std::vector<pb::Hello>& stages, const Host& host, std::vector<StageCpus>* plan) {
  const pb::Hello& hello = stages[host[0]];
  const Cores cores = CoresOf(hello);
  if (hello.allowed_cores() < hello.cpus_size() || !ShareOneSet(stages, host)) return;
  if (host.size() == 1 && static_cast<size_t>((*plan)[host[0]].threads) < cores.size()) return;
  std::vector<std::vector<int32_t>> sets;
  for (size_t i = 0; i < host.size(); ++i) {
    const auto begin = cores.begin() + static_cast<int64_t>(cores.size() * i / host.size());
    const auto end = cores.begin() + static_cast<int64_t>(cores.size() * (i + 1) / host.size());
    sets.push_back(PlaceWithin({begin, end}, (*plan)[host[i]].threads));
    if (sets.back().empty()) return;
  }
  for (size_t i = 0; i < host.size(); ++i) (*plan)[host[i]].cpus = std::move(sets[i]);
}

}  // namespace

std::vector<StageCpus> PlanCpus(const std::vector<pb::Hello>& stages, int32_t threads, bool bind) {
  std::map<std::string, Host> hosts;
  for (size_t stage = 0; stage < stages.size(); ++stage) hosts[stages[stage].host()].push_back(stage);
  std::vector<StageCpus> plan(stages.size());
  for (const auto& [name, host] : hosts) {
    for (const size_t stage : host) {
      int32_t share = UsableCores(stages[stage]) / Contenders(stages, host, stage);
      // A quota is one for all, whatever CPUs each may use.
      if (stages[stage].allowed_cores() < stages[stage].cpus_size()) {
        share = std::min(share, stages[stage].allowed_cores() / static_cast<int32_t>(host.size()));
      }
      plan[stage].threads = threads > 0 ? threads : std::max(1, share);
    }
    if (bind) BindHost(stages, host, &plan);
  }
  return plan;
}

}  // namespace stagecoach
