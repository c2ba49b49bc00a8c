#ifndef STAGECOACH_COORDINATOR_PLAN_POOL_PLAN_H_
#define STAGECOACH_COORDINATOR_PLAN_POOL_PLAN_H_

// How many KV blocks the stages' pools can have. Pure.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_description.h"
#include "coordinator/plan/pool_sizes.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Blocks of the pools of block groups without a window (pool_sizes.h), the same on every stage: the minimum over the
// hosts. `stages` are complete but for their pools, each for one of `hellos`, with `wanted_context` as their context.
//
// What the stages of one host hold comes out of one memory: weights, buffers of computation and frames, and the pools.
// Its size is the least that any of them sees of it. When job.kv_cache_bytes() is 0, the pools of a host get half of
// what weights and buffers leave, each stage in proportion to its layers; never more than max_num_seqs sequences of
// `wanted_context` tokens can use. What windows spare is blocks of the other groups. The other half stays for the page
// cache and for other programs; a relaunch takes up
// to seven eighths where job.min_kv_tokens() need them.
//
// kResourceExhausted: a host has not enough for weights and buffers, or for one block of each of its stages beside
// them; says what is there and what is needed. kInvalidArgument: a KV type that does not suit the model.
absl::StatusOr<int32_t> PlanBlocks(const pb::ConfigureJob& job, const std::vector<pb::Hello>& hellos,
                                   const ModelDescription& model, const std::vector<pb::StageAssignment>& stages,
                                   int64_t wanted_context);

// What PlanBlocks must find left of a host's memory for the pools, where one block of group g of its stages takes
// block_bytes[g]: enough for one block, and on a relaunch for job.min_kv_tokens(). At most 2^50. Only where
// job.kv_cache_bytes() is 0.
uint64_t LeastPoolBytes(const pb::ConfigureJob& job, const PoolSizes& pools, absl::Span<const uint64_t> block_bytes);

// Blocks that max_num_seqs sequences of `context` tokens can use, as far as a pool can have them.
uint64_t MostBlocks(const pb::ConfigureJob& job, int64_t context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_POOL_PLAN_H_
