#ifndef STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_

// A micro-batch as the layers see it: rows with their positions and block tables, and attention cut into independent
// pieces of work.

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/step/step.h"
#include "stage_worker/kv/sequence_table.h"

namespace stagecoach {

struct StepRow {
  int64_t position = 0;             // in its sequence
  TokenId token = kNoToken;         // on the stage with the embedding
  const BlockId* blocks = nullptr;  // the sequence's block table
};

// Consecutive rows of one sequence that attend together, for one KV head.
struct AttentionWork {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t kv_head = 0;
};

class StepPlan {
 public:
  // rows_per_work: most rows of an AttentionWork. Memory is reserved for steps of max_rows rows in max_slices slices.
  StepPlan(int32_t max_rows, int32_t max_slices, int32_t rows_per_work, int64_t kv_heads);

  // Lays out a batch that `table` has taken in; valid until the table changes.
  void Build(const MicroBatch& batch, const SequenceTable& table);

  const std::vector<StepRow>& rows() const { return rows_; }
  const std::vector<AttentionWork>& attention() const { return attention_; }
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }

 private:
  const int32_t rows_per_work_;
  const int64_t kv_heads_;
  std::vector<StepRow> rows_;
  std::vector<AttentionWork> attention_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_
