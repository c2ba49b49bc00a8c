#ifndef STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_

// From what the user asked for, what the model needs and what the hosts have: what each stage is.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "common/wire/frame.h"
#include "coordinator/plan/partitioner.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct JobPlan {
  std::vector<pb::StageAssignment> stages;
  int64_t context = 0;  // most tokens a sequence may have
  int64_t max_open_tokens = 0;
  std::vector<int32_t> group_blocks;   // [groups] blocks of each block group's pool, on every stage
  std::vector<int64_t> group_windows;  // [groups] behind which they are released, 0: never; empty: none is
  int32_t micro_batches = 0;           // in flight
  int32_t most_groups = 0;             // of decode rows: with more than micro_batches as many are in flight
  bool bf16_dot = false;               // the bit class

  // The first block group without a window: its pool bounds the tokens that sequences can have.
  size_t full_group() const;
};

// The defaults of a zero field:
//   layer split     even by the bytes a decode step reads (layers and head; of the embedding it reads a row a token),
//                   as far as the hosts' memory allows (layer_split.h)
//   threads         the host's allowed cores / its stages, at least 1; with the CPUs they run on (cpu_plan.h)
//   context         min(the model's, what the pool holds)
//   kv_cache_bytes  half of what weights and buffers leave of each host's memory (pool_plan.h)
//   micro_batches   the number of stages; one more while decode rows go round in that many groups
//   isa, bf16_dot   of each stage the best that its host has, with the BF16 dot where all have it (bit_class.h)
// The pools have the same number of blocks everywhere: the minimum over the stages. Those of groups with a window have
// no more than all sequences can use (pool_sizes.h).
// kInvalidArgument: a field out of range, or against the model. kResourceExhausted: weights, buffers or not even one
// block fit; says how much is there and needed. kFailedPrecondition: a host without the instruction set, or a saved
// plan that no longer fits. Messages name the
// fields of the job in backquotes: `kv_cache_bytes`.
// `stages`: who they are, in the order in which the layers pass through them, which may be any order of ranks.
// `costs`: by which the layers are split in place of those bytes; its memory is not looked at. nullptr: none.
absl::StatusOr<JobPlan> PlanJob(const pb::ConfigureJob& job, const std::vector<pb::Hello>& stages,
                                const ModelDescription& model, const JobEpoch& epoch,
                                const PartitionInput* costs = nullptr);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_JOB_PLAN_H_
