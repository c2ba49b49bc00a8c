#include "stage_worker/model/embedding.h"

namespace stagecoach {

void EmbedTokens(const PackedMatrix& table, float scale, const StepPlan& plan, const Worker& worker, float* x) {
  const Gang::Part part = worker.Share(plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    float* const out = x + row * table.cols;
    table.UnpackRow(plan.rows()[static_cast<size_t>(row)].token, out);
    if (scale == 1) continue;
    for (int64_t i = 0; i < table.cols; ++i) out[i] *= scale;
  }
}

}  // namespace stagecoach
