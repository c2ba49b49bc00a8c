#include "stage_worker/model/projection.h"

#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {

void AddProjection(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, float* x) {
  const int64_t rows = step.plan.row_count();
  const Gang::Part panels = SharePanels(matrix, worker.thread, worker.threads());
  float* const delta = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  ForEachBlock(panels, BlockPanels(rows), rows, [&](Gang::Part block, int64_t first, int64_t count) {
    const int64_t stride = (block.end - block.begin) * kPanelRows;
    Project(step.kernels, matrix, bias, RowsFrom(input, matrix.cols, first), count, block, delta, stride);
    const Gang::Part columns = OutputColumns(matrix, block);
    for (int64_t row = 0; row < count; ++row) {
      step.kernels.add(delta + row * stride, columns.end - columns.begin,
                       x + (first + row) * matrix.rows + columns.begin);
    }
  });
}

}  // namespace stagecoach
