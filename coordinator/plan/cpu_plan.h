#ifndef STAGECOACH_COORDINATOR_PLAN_CPU_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_CPU_PLAN_H_

// How many threads each stage computes with, and on which CPUs. Pure.

#include <cstdint>
#include <vector>

#include "proto/control.pb.h"

namespace stagecoach {

struct StageCpus {
  int32_t threads = 1;
  std::vector<int32_t> cpus;  // empty: not bound; as many as threads: one for each; more: all for all
  // The stages that may use these CPUs have more threads than there are CPUs: one that waits must not spin.
  bool contended = false;
};

// One result per stage. `threads`: of each stage; 0: the host's cores (not hardware threads; no more than a CPU quota
// allows) / its stages, at least 1.
//
// Where the stages of a host may all use the same CPUs, its cores are cut into one run of neighbours for each stage. A
// stage with as many threads as cores has the first hardware thread of each; with more threads the second ones follow;
// with fewer its threads share the run. A host's only stage that has fewer threads than cores gets the cores of as few
// NUMA nodes as have one for every thread, so that its weights lie near them. Nothing on a host is bound
//   without `bind`;
//   when a stage has more threads than its run has CPUs;
//   when a stage with one thread would be tied to one CPU: it has no barrier to meet, and what it saves by staying
//   there it loses by waiting for the threads that carry messages (a gang gains: its barriers keep to 0.3 us on a busy
//   machine where they would take 100);
//   under a CPU quota that is smaller than the set: others compute there too, and which CPUs are free is not known;
//   when the launcher has already given the stages different sets, each of which is then a stage's own;
//   when a single stage leaves cores free on every node: there is nothing to keep apart.
std::vector<StageCpus> PlanCpus(const std::vector<pb::Hello>& stages, int32_t threads, bool bind);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CPU_PLAN_H_
