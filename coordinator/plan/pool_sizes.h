#ifndef STAGECOACH_COORDINATOR_PLAN_POOL_SIZES_H_
#define STAGECOACH_COORDINATOR_PLAN_POOL_SIZES_H_

// How the pools of a job's block groups go together. Those without a window all have the same number of blocks, which
// is what a job's room is told by; one with a window (common/step/window_blocks.h) has as many, but no more than the
// sequences can use of it. Pure.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/hyper_parameters.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Behind which windows blocks of a model's groups are given back: [groups] as of its layers, or empty where no group
// has one. Where all have, the first one keeps its blocks all the same: the prefix cache's entries hang on a group that
// does.
std::vector<int64_t> ReleaseWindows(const HyperParameters& hyper);

class PoolSizes {
 public:
  PoolSizes(const pb::ConfigureJob& job, const HyperParameters& hyper);

  // [groups] where those without a window have `blocks`, which is as far as a pool can go at most.
  std::vector<int32_t> Blocks(uint64_t blocks) const;
  // What these take where a block of group g takes block_bytes[g] bytes; at most 2^62.
  uint64_t Bytes(uint64_t blocks, absl::Span<const uint64_t> block_bytes) const;
  // The most blocks whose Bytes are at most `bytes`, as far as a pool can have them.
  uint64_t Fitting(uint64_t bytes, absl::Span<const uint64_t> block_bytes) const;

 private:
  std::vector<uint64_t> most_;  // [groups]
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_POOL_SIZES_H_
