#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_STEP_TIME_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_STEP_TIME_H_

// What a step takes the slowest stage, learned from the times of results: two models, each for what it decides. Both
// are least squares that forget (least_squares.h), none of whose coefficients is negative. Pure; not thread-safe.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/step/step.h"
#include "coordinator/schedule/policy/least_squares.h"

namespace stagecoach {

// How much of its weights a step reads, by its rows. By default all rows see all weights. With experts a row sees those
// that it chooses, and a step reads what some row sees.
struct ReadCurve {
  double experts = 0;  // share of the weights that are experts'
  double chosen = 1;   // share of the experts that a row chooses: above 0, at most 1

  // As a multiple of what one row's step reads: 1 .. 1 / (1 - experts * (1 - chosen)).
  double Of(double rows) const { return Share(rows) / Share(1); }
  // What one more row adds to it.
  double Slope(double rows) const {
    return chosen < 1 ? -experts * std::log1p(-chosen) * std::pow(1 - chosen, rows) / Share(1) : 0;
  }

 private:
  double Share(double rows) const { return 1 - experts * std::pow(1 - chosen, rows); }  // of all weights
};

// p of `rows` rows behind `history` others of their sequence, times two (a is as much smaller).
inline double AttentionPairs(double rows, double history) { return rows * (rows + 2 * history); }
double AttentionPairs(const MicroBatch& batch);

// By rows and by what they attend to:
//   t(r, p) = t0 + e * (w(r) - 1) + sum over j of c_j * max(0, r - R_j) + a * p
// of a micro-batch of r rows, of prompts or decoding alike, which attend to p pairs of a row and a position.
//   t0   reading the weights that one row sees, and what else a step takes however few its rows are
//   w    how many times as much r rows read (ReadCurve; 1 without experts), e: as much as one row reads once more
//   c_j  a row's work, by three slopes: reading hides the work of few rows, and where experts are read that of many
//   a    attention
// Two answers for more rows than any step of late had:
//   Us       as the formula has it. Too little where reading still hides the rows' work.
//   MostUs   a row costs no less than it did in the largest step of late. Too much where rows share what is read.
struct StepTimeModel {
  static constexpr size_t kSlopes = 3;
  static constexpr std::array<double, kSlopes> kFrom = {0, 32, 128};  // R_j

  double fixed_us = 0;                   // t0
  double read_us = 0;                    // e
  std::array<double, kSlopes> row_us{};  // c
  double pair_us = 0;                    // a
  ReadCurve reads;                       // w
  double most_rows = 0;                  // of a step of late

  double Us(double rows, double pairs) const;
  double MostUs(double rows, double pairs) const;
};

class StepTimeFit {
 public:
  static constexpr double kMemory = 128;  // results in which half of the weight is forgotten
  static constexpr int kNeeded = 8;       // results before anything is known

  explicit StepTimeFit(ReadCurve reads = {}) : reads_(reads) {}

  void Add(const MicroBatch& batch, int64_t slowest_us) { Add(batch.rows(), AttentionPairs(batch), slowest_us); }
  void Add(int64_t rows, double pairs, int64_t slowest_us);
  const std::optional<StepTimeModel>& time() const { return time_; }

 private:
  const ReadCurve reads_;
  ForgetfulFit<3 + StepTimeModel::kSlopes> fit_{kMemory, {0.01, 0.001, 0.01, 0.01, 0.01, 0.01}};
  double most_rows_ = 0;  // as StepTimeModel's
  std::optional<StepTimeModel> time_;
};

// By rows alone, with one slope, as phases.h wants it:
//   t(r) = t0 + e * (w(r) - 1) + c * r
// Between 4 and 200 rows of an expert model it is off by up to half. Without e a line that is right for few rows has
// many cost far too much: prompts went in steps of 64 rows where 512 cost little more, which took deepseek-v3,
// gpt-oss-120b and kimi-k2 up to a third of their tokens/s (simulated, 4 to 16 hosts). e is not t0: the slowest stage
// is often another one for few rows (the last one, which has the head) than for many. While all micro-batches have one
// size, c explains what it can: extrapolated to more rows, a step is then rather thought too slow.
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
  explicit RowCostFit(ReadCurve reads = {}) : reads_(reads) {}

  void Add(int64_t rows, int64_t slowest_us);
  std::optional<RowCost> cost() const { return cost_; }

 private:
  const ReadCurve reads_;
  ForgetfulFit<3> fit_{StepTimeFit::kMemory, {0.01, 0, 0}};
  double most_rows_ = 0;  // as RowCost's
  std::optional<RowCost> cost_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_POLICY_STEP_TIME_H_
