#ifndef STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_
#define STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_

// Which layers each stage gets. A pipeline is as fast as its slowest stage, so the split minimises the largest stage
// time. Pure functions.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// Layers [begin, end) of one stage; never empty.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Costs in any one unit (seconds, bytes read per token); finite and >= 0.
struct PartitionInput {
  std::vector<double> layer_cost;  // [layers]
  double embedding_cost = 0;       // paid by the first stage
  double head_cost = 0;            // paid by the last stage
  int stages = 1;
  std::vector<double> stage_speed;  // [stages], > 0: a stage's time is its cost divided by this; empty: all alike
};

// The exact optimum by dynamic programming, O(stages * layers^2). Among the splits with the smallest maximum (equal
// within 1e-12 of it, so that rounding does not decide) the one with the smallest sum of squared stage times, the most
// even one; among equals of that the one that gives more layers to earlier stages. kInvalidArgument: stages < 1, more
// stages than layers, a cost or speed out of range, speeds that are not one per stage.
absl::StatusOr<std::vector<LayerRange>> PartitionLayers(const PartitionInput& input);

// A split by hand: layers of each stage in stage order, "10,9,9". kInvalidArgument, with all numbers involved, when it
// is not `stages` positive integers that add up to `layers`.
absl::StatusOr<std::vector<LayerRange>> ParseLayerSplit(absl::string_view split, int64_t layers, int stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PARTITIONER_H_
