#ifndef STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_

// Plans a job from settings, the model's needs and the hosts' resources: each stage's layers, threads and pools.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_settings.h"
#include "common/model/model_description.h"
#include "common/wire/frame.h"
#include "coordinator/plan/partitioner.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct JobPlan : BatchingRoom {
  std::vector<pb::StageAssignment> stages;
  bool bf16_dot = false;  // the bit class

  // The first block group without a window: its pool bounds the tokens that sequences can have.
  size_t full_group() const;
};

// kInvalidArgument: the job asks for another number of stages than its world has.
absl::Status CheckWorld(const pb::ConfigureJob& job, int stages);

// The defaults of a zero field:
//   layer split     even by the bytes a decode step reads (layers and head; of the embedding it reads a row a token),
//                   as far as the hosts' memory allows
//   threads         the host's allowed cores / its stages, at least 1; with the CPUs they run on (PlanCpus)
//   context         min(the model's, what the pool holds)
//   kv_cache_bytes  half of what weights and buffers leave of each host's memory, for blocks and recurrent states
//                   (stage_memory.h)
//   micro_batches   the number of stages; one more while decode rows go round in that many groups
//   guess_rows      of a sequence in flight at most, where the job speculates: as many as micro-batches, but no more
//                   than kMostGuessRows, or kMostStateRows where each needs a slot for recurrent states; 1 with one
//                   stage, or where `speculate` is auto and there is no memory for these slots
//   isa, bf16_dot   of each stage the best that its host has, with the BF16 dot where all have it (handshake.h)
// The pools have the same number of blocks everywhere: the minimum over the stages. Those of groups with a window have
// no more than all sequences can use (stage_memory.h).
// kInvalidArgument: a field out of range, or against the model. kResourceExhausted: weights, buffers or not even one
// block fit; says how much is there and needed. kFailedPrecondition: a host without the instruction set, or a saved
// plan that no longer fits. Messages name the fields of the job in backquotes: `kv_cache_bytes`.
// `stages`: who they are, in the order in which the layers pass through them, which may be any order of ranks.
// `costs`: by which the layers are split in place of those bytes; its memory is not looked at. nullptr: none.
absl::StatusOr<JobPlan> PlanJob(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages,
                                const ModelDescription& model, const JobEpoch& epoch,
                                const PartitionInput* costs = nullptr);

inline constexpr int32_t kMostGuessRows = 16, kMostStateRows = 8;
int32_t MostGuessRows(const HyperParameters& hyper, int stages, int32_t micro_batches);  // of a job that speculates

struct StageCpus {
  int32_t threads = 1;
  std::vector<int32_t> cpus;  // empty: not bound; as many as threads: one for each; more: all for all
  // The stages that may use these CPUs have more threads than there are CPUs: one that waits must not spin.
  bool contended = false;
};

// How many threads each stage computes with, and on which CPUs; one result per stage. `threads`: of each stage; 0: the
// host's cores (not hardware threads; no more than a CPU quota allows) / its stages, at least 1.
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

#endif  // STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_
