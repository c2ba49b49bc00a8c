#ifndef STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_

// What a row costs the slowest stage, found out from the times of results. Pure; not thread-safe.
//
//   t(r) = t0 + c * r     of a micro-batch of r rows, of prompts or decoding alike
// t0: reading the weights, and what else a step takes however few its rows are; c: a row's work. The fit forgets (half
// of its weight in kMemory results), so that growing contexts and other loads on a host are followed. While all
// micro-batches have one size, c explains what it can: extrapolated to more rows, a step is then rather thought too
// slow.

#include <cstdint>
#include <optional>

#include "coordinator/schedule/forgetful_fit.h"

namespace stagecoach {

struct RowCost {
  double fixed_us = 0;  // t0
  double row_us = 0;    // c; 0 where rows cost nothing that shows
};

class RowCostFit {
 public:
  static constexpr double kMemory = 128;
  static constexpr int kNeeded = 8;  // results before anything is known

  void Add(int64_t rows, int64_t slowest_us);
  std::optional<RowCost> cost() const { return cost_; }

 private:
  ForgetfulFit<2> fit_{kMemory, {0.01, 0}};
  std::optional<RowCost> cost_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_
