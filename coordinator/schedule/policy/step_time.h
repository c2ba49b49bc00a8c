#ifndef STAGECOACH_COORDINATOR_SCHEDULE_POLICY_STEP_TIME_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_POLICY_STEP_TIME_H_

// Two models of the slowest stage's time for a step, fitted to the times of results by non-negative least squares with
// exponential forgetting (least_squares.h). Pure; not thread-safe.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/step/step.h"
#include "coordinator/schedule/policy/least_squares.h"

namespace stagecoach {

// How much of its weights a step reads, by its rows: all by default; with experts, those that some row chooses.
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
int64_t SampledRows(const MicroBatch& batch);

// By rows and by what they attend to:
//   t(r, p, d) = t0 + e * (w(r) - 1) + sum over j of c_j * max(0, r - R_j) + a * p + (h if d > 0)
// for a micro-batch of r rows, prompt and decode rows alike, which attend to p pairs of a row and a position. Of d rows
// a token is sampled.
//   t0   fixed: reading what one row needs, and all else that does not depend on r
//   w    how many times as much r rows read (ReadCurve; 1 without experts); e: the time to read what one row needs
//   c_j  work of rows, by three slopes: reading hides the work of few rows, and with experts that of many
//   a    attention
//   h    the output head, which only sampled rows need. It is as much as several layers: where stages have one layer
//        each, a decode step takes two to three times as long as a prompt's of as many rows
// Two estimates for more rows than any recent step had:
//   Us       the formula. Too low where reading still hides the rows' work.
//   MostUs   a row costs no less than in the largest recent step. Too high where rows share what is read.
struct StepTimeModel {
  static constexpr size_t kSlopes = 3;
  static constexpr std::array<double, kSlopes> kFrom = {0, 32, 128};  // R_j

  double fixed_us = 0;                   // t0
  double read_us = 0;                    // e
  std::array<double, kSlopes> row_us{};  // c
  double pair_us = 0;                    // a
  double head_us = 0;                    // h
  ReadCurve reads;                       // w
  double most_rows = 0;                  // of a step of late

  double Us(double rows, double pairs, double sampled_rows = 0) const;
  double MostUs(double rows, double pairs, double sampled_rows = 0) const;
};

class StepTimeFit {
 public:
  static constexpr double kMemory = 128;  // results in which half of the weight is forgotten
  static constexpr int kNeeded = 8;       // results before anything is known

  explicit StepTimeFit(ReadCurve reads = {}) : reads_(reads) {}

  void Add(const MicroBatch& batch, int64_t slowest_us) {
    Add(batch.rows(), AttentionPairs(batch), slowest_us, SampledRows(batch));
  }
  void Add(int64_t rows, double pairs, int64_t slowest_us, int64_t sampled_rows = 0);
  const std::optional<StepTimeModel>& time() const { return time_; }

 private:
  const ReadCurve reads_;
  // Until a step without sampled rows was seen, what all steps take is t0 rather than h.
  ForgetfulFit<4 + StepTimeModel::kSlopes> fit_{kMemory, {0.01, 0.001, 0.01, 1, 0.01, 0.01, 0.01}};
  double most_rows_ = 0;  // as StepTimeModel's
  std::optional<StepTimeModel> time_;
};

// By rows alone, with one slope, for phases.h:
//   t(r) = t0 + e * (w(r) - 1) + c * r
// Between 4 and 200 rows of an expert model it is off by up to half. Without e, a line fitted to few rows overestimates
// many: prompts went in steps of 64 rows where 512 cost little more, which cost deepseek-v3, gpt-oss-120b and kimi-k2
// up to a third of their tokens/s (simulated, 4 to 16 hosts). e is not t0: for few rows the slowest stage is often the
// last one, which has the head. While all micro-batches have one size, c absorbs t0, which errs towards steps too slow.
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
