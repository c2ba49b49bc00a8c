#include "stage_worker/model/step_plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

// What reading a granule of K and V costs, in columns that attend to it.
constexpr int64_t kReadCost = 4;

int64_t Granules(int64_t positions) { return (positions + kAttentionGranule - 1) / kAttentionGranule; }

}  // namespace

StepPlan::StepPlan(const AttentionSizes& sizes) : sizes_(sizes) {
  const int64_t walks = (sizes.max_rows / sizes.RowsPerWork() + sizes.max_slices) * sizes.kv_heads;
  rows_.reserve(static_cast<size_t>(sizes.max_rows));
  walks_.reserve(static_cast<size_t>(walks));
  cuts_.reserve(static_cast<size_t>(sizes.MaxCuts()));
  attention_.reserve(static_cast<size_t>(walks + 2 * sizes.MaxCuts()));
}

void StepPlan::Build(const MicroBatch& batch, const SequenceTable& table) {
  rows_.clear();
  walks_.clear();
  attention_.clear();
  cuts_.clear();
  partial_columns_ = 0;
  int64_t total_cost = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const SequenceTable::Entry* entry = table.Find(slice.sequence);
    CHECK(entry != nullptr && entry->rows >= int64_t{slice.start} + slice.count);
    const int32_t first_row = static_cast<int32_t>(rows_.size());
    for (int32_t i = 0; i < slice.count; ++i) {
      const TokenId token = slice.tokens.empty() ? kNoToken : slice.tokens[static_cast<size_t>(i)];
      rows_.push_back({int64_t{slice.start} + i, token, entry->tables.data()});
    }
    for (int32_t i = 0; i < slice.count; i += sizes_.RowsPerWork()) {
      AttentionWork walk;
      walk.first_row = first_row + i;
      walk.rows = std::min(sizes_.RowsPerWork(), slice.count - i);
      walk.end_granule = static_cast<int32_t>(Granules(int64_t{slice.start} + i + walk.rows));
      for (walk.kv_head = 0; walk.kv_head < sizes_.kv_heads; ++walk.kv_head) walks_.push_back(walk);
      total_cost += Cost(walk) * sizes_.kv_heads;
    }
  }
  for (const AttentionWork& walk : walks_) AddWalk(walk, total_cost);
}

int64_t StepPlan::Cost(const AttentionWork& walk) const {
  return walk.end_granule * (walk.rows * sizes_.group + kReadCost);
}

void StepPlan::AddWalk(const AttentionWork& walk, int64_t total_cost) {
  const int64_t granules = walk.end_granule;
  const int64_t share = Cost(walk) * sizes_.MaxCuts();  // in pieces, times total_cost
  const int64_t pieces = std::min(granules, (share + total_cost - 1) / total_cost);
  const int64_t columns = walk.rows * sizes_.group;
  const int64_t first_end = pieces > 1 ? granules / pieces : granules;
  const int64_t partials = 1 + granules - first_end;
  if (pieces <= 1 || partial_columns_ + partials * columns > sizes_.PartialColumns()) {
    attention_.push_back(walk);
    return;
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    AttentionWork work = walk;
    work.begin_granule = static_cast<int32_t>(granules * piece / pieces);
    work.end_granule = static_cast<int32_t>(granules * (piece + 1) / pieces);
    work.cut = static_cast<int32_t>(cuts_.size());
    attention_.push_back(work);
  }
  cuts_.push_back({.pieces = static_cast<int32_t>(pieces),
                   .folded = static_cast<int32_t>(first_end),
                   .partials = static_cast<int32_t>(partials),
                   .columns = static_cast<int32_t>(columns),
                   .first_column = partial_columns_});
  partial_columns_ += partials * columns;
}

}  // namespace stagecoach
