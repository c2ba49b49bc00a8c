#include "stage_worker/model/step_plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {

StepPlan::StepPlan(int32_t max_rows, int32_t max_slices, int32_t rows_per_work, int64_t kv_heads)
    : rows_per_work_(rows_per_work), kv_heads_(kv_heads) {
  rows_.reserve(static_cast<size_t>(max_rows));
  attention_.reserve(static_cast<size_t>((max_rows / rows_per_work + max_slices) * kv_heads));
}

void StepPlan::Build(const MicroBatch& batch, const SequenceTable& table) {
  rows_.clear();
  attention_.clear();
  for (const SequenceSlice& slice : batch.slices) {
    const SequenceTable::Entry* entry = table.Find(slice.sequence);
    CHECK(entry != nullptr && entry->rows >= int64_t{slice.start} + slice.count);
    const int32_t first_row = static_cast<int32_t>(rows_.size());
    for (int32_t i = 0; i < slice.count; ++i) {
      const TokenId token = slice.tokens.empty() ? kNoToken : slice.tokens[static_cast<size_t>(i)];
      rows_.push_back({int64_t{slice.start} + i, token, entry->blocks.data()});
    }
    for (int32_t i = 0; i < slice.count; i += rows_per_work_) {
      const int32_t rows = std::min(rows_per_work_, slice.count - i);
      for (int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
        attention_.push_back({first_row + i, rows, static_cast<int32_t>(kv_head)});
      }
    }
  }
}

}  // namespace stagecoach
