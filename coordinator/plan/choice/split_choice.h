#ifndef STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_
#define STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_

// The split of layers with which a whole load takes least time (prediction.h), where the partitioner only balances
// stages: beside a slow link, with few micro-batches in flight, or where prompts and decoding load hosts differently.
// Pure.

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
  int in_flight = 1;  // micro-batches; of decoding: at least so many
  double times = 1;
  double floor = 0;
  double slowest = 1;
  double around = 0, fixed = 0;
};

// A load takes the least of what any two terms take together that go with each other: its prompts with some number of
// micro-batches in flight, and its decoding with no more.
struct SplitLoad {
  std::vector<SplitTerm> prompts;  // not empty
  std::vector<SplitTerm> decode;   // not empty
};

// Whether hosts[host] has the memory for layers [begin, end) on its stages: if so, then also for fewer of them.
using HostFits = std::function<bool(size_t host, int64_t begin, int64_t end)>;

// The split with which the load takes least time, and of those the most even one, by the squared costs of the stages.
// `split`: one that fits, returned if none is better. For each two terms the stages get their layers one after the
// other. Of the ways to give the first stages the first n layers, those go on that may still become best, by what the
// other stages take at least; of these the most promising 64, with more than 4 stages 8. Exact where there are no more:
// always with up to 3 stages of 65 layers. O(terms^2 * stages * layers^2) times that, most of it ruled out at once.
std::vector<LayerRange> BestSplit(const SplitLoad& load, const std::vector<HostMemory>& hosts, const HostFits& fits,
                                  std::vector<LayerRange> split);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_CHOICE_SPLIT_CHOICE_H_
