#include "stage_worker/model/layers/step_plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

// What reading a granule of K and V costs, in columns that attend to it.
constexpr int64_t kReadCost = 4;

}  // namespace

WalkPlan::WalkPlan(const AttentionSizes& sizes) : sizes_(sizes) {
  const int64_t walks = (sizes.max_rows / sizes.RowsPerWork() + sizes.max_slices) * sizes.head_groups;
  walks_.reserve(static_cast<size_t>(walks));
  cuts_.reserve(static_cast<size_t>(sizes.MaxCuts()));
  // Of MaxCuts() pieces that all walks would be cut into if these were of one size, each walk has one more at most.
  work_.reserve(static_cast<size_t>(walks + 2 * sizes.MaxCuts()));
}

void WalkPlan::Build(const MicroBatch& batch) {
  walks_.clear();
  work_.clear();
  cuts_.clear();
  partial_columns_ = 0;
  int64_t total_cost = 0;
  int32_t first_row = 0;
  for (const SequenceSlice& slice : batch.slices) {
    for (int32_t i = 0; i < slice.count; i += sizes_.RowsPerWork()) {
      AttentionWork walk;
      walk.first_row = first_row + i;
      walk.rows = std::min(sizes_.RowsPerWork(), slice.count - i);
      const int64_t position = int64_t{slice.start} + i, end = position + walk.rows;
      const int64_t begin = sizes_.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - sizes_.window);
      walk.begin_granule = static_cast<int32_t>(begin / kAttentionGranule);
      walk.end_granule = static_cast<int32_t>((end + kAttentionGranule - 1) / kAttentionGranule);
      for (walk.head_group = 0; walk.head_group < sizes_.head_groups; ++walk.head_group) walks_.push_back(walk);
      total_cost += Cost(walk) * sizes_.head_groups;
    }
    first_row += slice.count;
  }
  for (const AttentionWork& walk : walks_) AddWalk(walk, total_cost);
}

int64_t WalkPlan::Cost(const AttentionWork& walk) const {
  return (walk.end_granule - walk.begin_granule) * (walk.rows * sizes_.group + kReadCost);
}

void WalkPlan::AddWalk(const AttentionWork& walk, int64_t total_cost) {
  const int64_t begin = walk.begin_granule, granules = walk.end_granule - begin;
  const int64_t share = Cost(walk) * sizes_.MaxCuts();  // in pieces, times total_cost
  const int64_t pieces = std::min(granules, (share + total_cost - 1) / total_cost);
  const int64_t columns = walk.rows * sizes_.group;
  const int64_t folded = pieces > 1 ? granules / pieces : granules;
  const int64_t partials = 1 + granules - folded;
  if (pieces <= 1 || partial_columns_ + partials * columns > sizes_.PartialColumns()) {
    work_.push_back(walk);
    return;
  }
  for (int64_t piece = 0; piece < pieces; ++piece) {
    AttentionWork work = walk;
    work.begin_granule = static_cast<int32_t>(begin + granules * piece / pieces);
    work.end_granule = static_cast<int32_t>(begin + granules * (piece + 1) / pieces);
    work.cut = static_cast<int32_t>(cuts_.size());
    work_.push_back(work);
  }
  cuts_.push_back({.pieces = static_cast<int32_t>(pieces),
                   .folded_end = static_cast<int32_t>(begin + folded),
                   .partials = static_cast<int32_t>(partials),
                   .columns = static_cast<int32_t>(columns),
                   .first_column = partial_columns_});
  partial_columns_ += partials * columns;
}

StepPlan::StepPlan(const std::vector<AttentionSizes>& walks) {
  CHECK(!walks.empty());
  rows_.reserve(static_cast<size_t>(walks.front().max_rows));
  walks_.reserve(walks.size());
  for (const AttentionSizes& sizes : walks) walks_.emplace_back(sizes);
}

void StepPlan::Build(const MicroBatch& batch, const SequenceTable& table) {
  rows_.clear();
  for (const SequenceSlice& slice : batch.slices) {
    const SequenceTable::Entry* entry = table.Find(slice.sequence);
    CHECK(entry != nullptr && entry->rows >= int64_t{slice.start} + slice.count);
    for (int32_t i = 0; i < slice.count; ++i) {
      const TokenId token = slice.tokens.empty() ? kNoToken : slice.tokens[static_cast<size_t>(i)];
      rows_.push_back({int64_t{slice.start} + i, token, entry->tables.data()});
    }
  }
  for (WalkPlan& walks : walks_) walks.Build(batch);
}

}  // namespace stagecoach
