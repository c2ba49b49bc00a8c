#include "stage_worker/model/embedding.h"

namespace stagecoach {

void EmbedTokens(const PackedMatrix& table, const StepPlan& plan, const Worker& worker, float* x) {
  const Gang::Part part = worker.Share(plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    table.UnpackRow(plan.rows()[static_cast<size_t>(row)].token, x + row * table.cols);
  }
}

}  // namespace stagecoach
