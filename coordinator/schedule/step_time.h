#ifndef STAGECOACH_COORDINATOR_SCHEDULE_STEP_TIME_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_STEP_TIME_H_

// What a step takes the slowest stage, by its rows and by what they attend to: learned from the times of results. Pure;
// not thread-safe.
//
//   t(r, p) = t0 + e * (w(r) - 1) + sum over j of c_j * max(0, r - R_j) + a * p
// of a micro-batch of r rows, of prompts or decoding alike, which attend to p pairs of a row and a position.
//   t0   reading the weights that one row sees, and what else a step takes however few its rows are
//   w    how many times as much r rows read (read_curve.h; 1 without experts), e: as much as one row reads once more
//   c_j  a row's work, by three slopes: reading hides the work of few rows, and where experts are read that of many
//   a    attention
// All are least squares (forgetful_fit.h), none negative. row_cost.h has one slope for all rows, as phase_switch.h
// wants it: between 4 and 200 rows of an expert model it is off by up to half.
//
// Two answers for more rows than any step of late had:
//   Us       as the formula has it. Too little where reading still hides the rows' work.
//   MostUs   a row costs no less than it did in the largest step of late. Too much where rows share what is read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/step/step.h"
#include "coordinator/schedule/forgetful_fit.h"
#include "coordinator/schedule/read_curve.h"

namespace stagecoach {

// p of `rows` rows behind `history` others of their sequence, times two (a is as much smaller).
inline double AttentionPairs(double rows, double history) { return rows * (rows + 2 * history); }
double AttentionPairs(const MicroBatch& batch);

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
  static constexpr double kMemory = 128;
  static constexpr int kNeeded = 8;  // results before anything is known

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

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_STEP_TIME_H_
