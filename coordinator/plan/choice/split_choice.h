#ifndef STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_
#define STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_

// Improves a split of layers by what the whole load takes (prediction.h), where the partitioner only balances stages:
// beside a slow link, with few micro-batches under way, or where prompts and decoding load hosts differently. Pure.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "coordinator/plan/partitioner.h"

namespace stagecoach {

// What layers cost on each stage, summed up from the first layer on. Seconds.
struct SplitSums {
  std::vector<std::vector<double>> before;  // [stages][layers + 1]
  double head = 0;                          // of the last stage
};

// A part of a load as a split decides it. It takes
//   times * max(floor, slowest * max_s c_s, around * (fixed + sum_s c_s))
// where c_s is what the layers of stage s cost.
struct SplitTerm {
  std::shared_ptr<const SplitSums> sums;
  double times = 1;
  double floor = 0;
  double slowest = 1;
  double around = 0, fixed = 0;
};

// A load: its prompts with 1, 2, ... micro-batches in flight, and its decoding in as many groups. It is run with the
// number in flight for which both together are fastest; decoding may use fewer groups.
struct SplitLoad {
  std::vector<SplitTerm> prompts;  // by micro-batches in flight
  std::vector<SplitTerm> decode;   // of as many; the last one stands for more
};

// CHECK: `prompts` and `decode` are not empty, and the split has ranges for all stages.
double SecondsOf(const SplitLoad& load, const std::vector<LayerRange>& split);

// Moves one layer after the other from a stage to another, those between shifting theirs, while that makes the load
// faster, or no slower and the stages more even. With many stages only from the slowest ones. `fits`: whether the hosts
// have the memory; asked of splits that are better. A local optimum: every single move was tried.
std::vector<LayerRange> ImproveSplit(std::vector<LayerRange> split, const SplitLoad& load,
                                     const std::function<bool(const std::vector<LayerRange>&)>& fits);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_
