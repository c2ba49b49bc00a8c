#ifndef STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_PLAN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_PLAN_H_

// A micro-batch as the layers see it: rows with their positions and block tables, and the attention of the step, cut
// into independent pieces of work.

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/model/footprint.h"
#include "common/step/step.h"
#include "stage_worker/kv/sequence_table.h"

namespace stagecoach {

// Granules [begin_granule, end_granule) of a walk: consecutive rows of one sequence attend together, for one group of
// heads, to the positions that they see.
struct AttentionWork {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t head_group = 0;
  int32_t begin_granule = 0;
  int32_t end_granule = 0;
  int32_t cut = -1;  // which AttentionCut this is a piece of; -1: the whole walk
};

// A walk that several threads share. The first piece folds its granules into one partial state; every later granule has
// a partial state of its own. They lie behind each other in ascending order.
struct AttentionCut {
  int32_t pieces = 0;
  int32_t folded_end = 0;  // the granule behind those of the first piece
  int32_t partials = 0;
  int32_t columns = 0;       // of each partial
  int64_t first_column = 0;  // of the first partial, in the memory of all partials
};

// The work of layers of one kind.
class WalkPlan {
 public:
  // Memory is reserved for the largest step.
  explicit WalkPlan(const AttentionSizes& sizes);

  // For the rows of a batch, slice after slice. How walks are cut depends on the number of threads, and changes no
  // result.
  void Build(const MicroBatch& batch);

  const AttentionSizes& sizes() const { return sizes_; }
  const std::vector<AttentionWork>& work() const { return work_; }
  const std::vector<AttentionCut>& cuts() const { return cuts_; }

 private:
  int64_t Cost(const AttentionWork& walk) const;
  void AddWalk(const AttentionWork& walk, int64_t total_cost);

  const AttentionSizes sizes_;
  std::vector<AttentionWork> walks_;
  std::vector<AttentionWork> work_;
  std::vector<AttentionCut> cuts_;
  int64_t partial_columns_ = 0;  // in use by cuts_
};

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

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LAYERS_STEP_PLAN_H_
