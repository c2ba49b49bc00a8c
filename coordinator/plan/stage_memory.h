#ifndef STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_
#define STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_

// What a stage takes of its host's memory, by the same functions by which it takes it. Pure.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_description.h"
#include "proto/control.pb.h"

namespace stagecoach {

// In bytes. Beside them a stage process holds what any does that has no model yet: code, libraries, MPI.
//
// Of these bytes are resident (in RAM) from the start: the weights. The KV pool is address space at first: a block's
// pages become resident when its first token is written, and stay so. Scratch and frames become resident with the
// largest micro-batch so far. So resident is at most total(), and reaches it when the pool has been full once and a
// micro-batch had all the rows it may have; after `tokens` tokens of context it is fixed() and the touched blocks'
// share of `kv`, in whole pages.
struct StageMemory {
  uint64_t weights = 0;  // in the kernels' layout
  uint64_t kv = 0;       // the pool: every block of every layer
  uint64_t scratch = 0;  // buffers of computation
  uint64_t frames = 0;   // frames that come and go

  uint64_t buffers() const { return scratch + frames; }
  uint64_t fixed() const { return weights + buffers(); }
  uint64_t total() const { return fixed() + kv; }
};

// Of `stage`, whose assignment is complete but for its pools, when these have group_blocks[g] blocks of every block
// group. kInvalidArgument: an unknown choice, or a KV type that does not suit the model.
absl::StatusOr<StageMemory> StageMemoryOf(const ModelDescription& model, const pb::StageAssignment& stage,
                                          absl::Span<const int32_t> group_blocks);

// [groups] One block of each of the stage's layers in the group. kInvalidArgument: as above.
absl::StatusOr<std::vector<uint64_t>> KvBlockBytes(const ModelDescription& model, const pb::StageAssignment& stage);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_STAGE_MEMORY_H_
