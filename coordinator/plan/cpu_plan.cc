#include "coordinator/plan/cpu_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace stagecoach {
namespace {

// A core's hardware threads, and the NUMA node they are on.
struct Core {
  std::vector<int32_t> cpus;
  int32_t node = 0;
};
using Cores = std::vector<Core>;

// In the order of their first hardware threads.
Cores CoresOf(const pb::Hello& hello) {
  Cores cores;
  std::map<int32_t, size_t> index;
  for (const pb::CpuPlace& place : hello.cpus()) {
    const auto [at, added] = index.try_emplace(place.core(), cores.size());
    if (added) cores.push_back({.node = place.node()});
    cores[at->second].cpus.push_back(place.cpu());
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

// The stages of the host that may use a CPU of this one's, itself included.
Host Contenders(const std::vector<pb::Hello>& stages, const Host& host, size_t stage) {
  const std::set<int32_t> own = CpuSet(stages[stage]);
  Host contenders;
  std::copy_if(host.begin(), host.end(), std::back_inserter(contenders), [&](size_t other) {
    const std::set<int32_t> cpus = CpuSet(stages[other]);
    return other == stage || own.empty() ||
           std::any_of(cpus.begin(), cpus.end(), [&](int32_t cpu) { return own.count(cpu) > 0; });
  });
  return contenders;
}

bool HasQuota(const pb::Hello& hello) { return hello.allowed_cores() < hello.cpus_size(); }

int32_t Threads(const std::vector<StageCpus>& plan, const Host& of) {
  return std::accumulate(of.begin(), of.end(), 0, [&](int32_t sum, size_t stage) { return sum + plan[stage].threads; });
}

// Whether an unbound stage and those that share CPUs with it have more threads than can run at once.
bool IsContended(const std::vector<pb::Hello>& stages, const Host& host, size_t stage,
                 const std::vector<StageCpus>& plan) {
  const pb::Hello& hello = stages[stage];
  if (HasQuota(hello) && Threads(plan, host) > hello.allowed_cores()) return true;
  const Host contenders = Contenders(stages, host, stage);
  std::set<int32_t> cpus;
  for (const size_t other : contenders) cpus.merge(CpuSet(stages[other]));
  return Threads(plan, contenders) > (cpus.empty() ? hello.allowed_cores() : static_cast<int32_t>(cpus.size()));
}

// The cores of as few nodes as have one for each thread; none when that takes all nodes.
Cores OnFewestNodes(const Cores& cores, int32_t threads) {
  std::map<int32_t, int32_t> size_of;
  std::vector<int32_t> nodes;  // in the order of the cores, then largest first
  for (const Core& core : cores) {
    if (size_of[core.node]++ == 0) nodes.push_back(core.node);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [&](int32_t a, int32_t b) { return size_of[a] > size_of[b]; });
  std::set<int32_t> taken;
  int32_t held = 0;
  for (size_t i = 0; i < nodes.size() && held < threads; ++i) {
    taken.insert(nodes[i]);
    held += size_of[nodes[i]];
  }
  if (taken.size() == nodes.size()) return {};
  Cores chosen;
  std::copy_if(cores.begin(), cores.end(), std::back_inserter(chosen),
               [&](const Core& core) { return taken.count(core.node) > 0; });
  return chosen;
}

// Where `threads` threads run within some cores; empty when they do not fit, or would tie a lone thread to one CPU.
std::vector<int32_t> PlaceWithin(const Cores& run, int32_t threads) {
  std::vector<int32_t> cpus;
  size_t most = 0;
  for (const Core& core : run) most = std::max(most, core.cpus.size());
  for (size_t sibling = 0; sibling < most; ++sibling) {
    for (const Core& core : run) {
      if (sibling < core.cpus.size()) cpus.push_back(core.cpus[sibling]);
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
  if (HasQuota(hello) || !ShareOneSet(stages, host)) return;
  if (const int32_t threads = (*plan)[host[0]].threads;
      host.size() == 1 && static_cast<size_t>(threads) < cores.size()) {
    (*plan)[host[0]].cpus = PlaceWithin(OnFewestNodes(cores, threads), threads);
    return;
  }
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
      int32_t share = UsableCores(stages[stage]) / static_cast<int32_t>(Contenders(stages, host, stage).size());
      // A quota is one for all, whatever CPUs each may use.
      if (HasQuota(stages[stage])) {
        share = std::min(share, stages[stage].allowed_cores() / static_cast<int32_t>(host.size()));
      }
      plan[stage].threads = threads > 0 ? threads : std::max(1, share);
    }
    if (bind) BindHost(stages, host, &plan);
    for (const size_t stage : host) {
      plan[stage].contended = plan[stage].cpus.empty() && IsContended(stages, host, stage, plan);
    }
  }
  return plan;
}

}  // namespace stagecoach
