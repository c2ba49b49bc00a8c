#ifndef STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_

// What a row costs the slowest stage, found out from the times of results. Pure; not thread-safe.
//
//   t(r) = t0 + e * (w(r) - 1) + c * r     of a micro-batch of r rows, of prompts or decoding alike
// t0: reading the weights that one row sees, and what else a step takes however few its rows are; w: how many times as
// much r rows read (read_curve.h; 1 without experts, which leaves a line), and e: as much as a row reads once more; c:
// a row's work. With experts a line that is right for few rows has many cost far too much: prompts went in steps of 64
// rows where 512 cost little more, which took deepseek-v3, gpt-oss-120b and kimi-k2 up to a third of their tokens/s
// (simulated, 4 to 16 hosts, Policy::kPhases).
//
// e is not t0: the slowest stage is often another one for few rows (the last one, which has the head) than for many.
// The fit forgets (half of its weight in kMemory results), so that growing contexts and other loads on a host are
// followed. While all micro-batches have one size, c explains what it can: extrapolated to more rows, a step is then
// rather thought too slow.

#include <cstdint>
#include <optional>

#include "coordinator/schedule/forgetful_fit.h"
#include "coordinator/schedule/read_curve.h"

namespace stagecoach {

struct RowCost {
  double fixed_us = 0;   // t0
  double row_us = 0;     // c; 0 where rows cost nothing that shows
  double read_us = 0;    // e; 0 without experts
  ReadCurve reads;       // w
  double most_rows = 0;  // of a step of late; where experts are read, c may only show with more

  // What a step of so many rows takes beside their own work.
  double FixedUs(double rows) const { return fixed_us + read_us * (reads.Of(rows) - 1); }
};

class RowCostFit {
 public:
  static constexpr double kMemory = 128;
  static constexpr int kNeeded = 8;  // results before anything is known

  explicit RowCostFit(ReadCurve reads = {}) : reads_(reads) {}

  void Add(int64_t rows, int64_t slowest_us);
  std::optional<RowCost> cost() const { return cost_; }

 private:
  const ReadCurve reads_;
  ForgetfulFit<3> fit_{kMemory, {0.01, 0, 0}};
  double most_rows_ = 0;  // as RowCost's
  std::optional<RowCost> cost_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_ROW_COST_H_
