#include "stage_worker/model/step_plan.h"

#include "common/base/check.h"

namespace stagecoach {

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
