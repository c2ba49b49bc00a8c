#ifndef STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_

// A micro-batch as the layers see it: rows with their positions and block tables, and what attention has to do for
// them.

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/model/footprint.h"
#include "common/step/step.h"
#include "stage_worker/kv/sequence_table.h"
#include "stage_worker/model/walk_plan.h"

namespace stagecoach {

struct StepRow {
  int64_t position = 0;                          // in its sequence
  TokenId token = kNoToken;                      // on the stage with the embedding
  const std::vector<BlockId>* tables = nullptr;  // [groups] the sequence's block tables
};

class StepPlan {
 public:
  // For layers with these kinds of walks, at least one. Memory is reserved for the largest step.
  explicit StepPlan(const std::vector<AttentionSizes>& walks);

  // Lays out a batch that `table` has taken in; valid until the table changes.
  void Build(const MicroBatch& batch, const SequenceTable& table);

  const std::vector<StepRow>& rows() const { return rows_; }
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }
  const WalkPlan& walks(size_t kind) const { return walks_[kind]; }

 private:
  std::vector<StepRow> rows_;
  std::vector<WalkPlan> walks_;  // [kinds]
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STEP_PLAN_H_
