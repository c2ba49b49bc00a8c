#include "coordinator/schedule/policy/step_time.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

constexpr double kRowsScale = 64, kPairsScale = 512 * 1024;  // features of about 1

void TrackMostRows(double rows, double* most_rows) {  // of a step of late
  *most_rows = std::max(*most_rows * std::exp2(-1 / StepTimeFit::kMemory), rows);
}

}  // namespace

double AttentionPairs(const MicroBatch& batch) {
  double pairs = 0;
  for (const SequenceSlice& slice : batch.slices) pairs += AttentionPairs(slice.count, slice.start);
  return pairs;
}

int64_t SampledRows(const MicroBatch& batch) {
  return std::count_if(batch.slices.begin(), batch.slices.end(), [](const SequenceSlice& s) { return s.sample; });
}

double StepTimeModel::Us(double rows, double pairs, double sampled_rows) const {
  double us = fixed_us + pair_us * pairs + (sampled_rows > 0 ? head_us : 0);
  if (read_us > 0) us += read_us * (reads.Of(rows) - 1);
  for (size_t i = 0; i < kSlopes; ++i) us += row_us[i] * std::max(0.0, rows - kFrom[i]);
  return us;
}

double StepTimeModel::MostUs(double rows, double pairs, double sampled_rows) const {
  const double us = Us(rows, pairs, sampled_rows);
  if (rows <= most_rows) return us;
  return std::max(us, Us(most_rows, 0) * rows / most_rows + Us(0, pairs, sampled_rows) - Us(0, 0));
}

void StepTimeFit::Add(int64_t rows, double pairs, int64_t slowest_us, int64_t sampled_rows) {
  const auto of = static_cast<double>(rows);
  TrackMostRows(of, &most_rows_);
  std::array<double, 4 + StepTimeModel::kSlopes> features = {1, reads_.Of(of) - 1, pairs / kPairsScale,
                                                             sampled_rows > 0 ? 1.0 : 0.0};
  for (size_t i = 0; i < StepTimeModel::kSlopes; ++i)
    features[4 + i] = std::max(0.0, of - StepTimeModel::kFrom[i]) / kRowsScale;
  fit_.Add(features, static_cast<double>(slowest_us));
  if (fit_.seen() < kNeeded) return;
  const auto solution = fit_.Solve();
  time_ = StepTimeModel{.fixed_us = solution[0],
                        .read_us = solution[1],
                        .pair_us = solution[2] / kPairsScale,
                        .head_us = solution[3],
                        .reads = reads_,
                        .most_rows = most_rows_};
  for (size_t i = 0; i < StepTimeModel::kSlopes; ++i) time_->row_us[i] = solution[4 + i] / kRowsScale;
}

void RowCostFit::Add(int64_t rows, int64_t slowest_us) {
  const auto of = static_cast<double>(rows);
  fit_.Add({1, of / kRowsScale, reads_.Of(of) - 1}, static_cast<double>(slowest_us));
  TrackMostRows(of, &most_rows_);
  if (fit_.seen() < StepTimeFit::kNeeded) return;
  const auto [fixed, row, read] = fit_.Solve();
  cost_ = RowCost{fixed, row / kRowsScale, read, reads_, most_rows_};
}

}  // namespace stagecoach
