#include "stage_worker/model/ffn.h"

#include <algorithm>

#include "stage_worker/model/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {

void RunGatedUp(const LayerWeights& weights, const Activations& input, const StepContext& step, const Worker& worker) {
  const int64_t rows = step.plan.row_count();
  const InputForms forms = InputForms::Of(step.kernels, {&weights.down});
  float* const gate = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  // The same panels of both matrices, so that the product needs no other thread's part.
  const Gang::Part panels = SharePanelPairs(weights.gate, worker.thread, worker.threads());
  ForEachBlock(panels, BlockPanels(rows), rows, [&](Gang::Part block, int64_t first, int64_t block_rows) {
    const int64_t stride = (block.end - block.begin) * kPanelRows;
    float* const up = gate + block_rows * stride;
    const Activations in = RowsFrom(input, weights.gate.cols, first);
    Project(step.kernels, weights.gate, weights.gate_bias, in, block_rows, block, gate, stride);
    Project(step.kernels, weights.up, weights.up_bias, in, block_rows, block, up, stride);
    const Gang::Part columns = OutputColumns(weights.gate, block);
    const int64_t count = columns.end - columns.begin;
    for (int64_t row = 0; row < block_rows; ++row) {
      float* const out = gate + row * stride;
      step.kernels.swiglu(out, up + row * stride, count, out);
      step.scratch.ffn_input.Set(step.kernels, forms, first + row, weights.down.cols, columns.begin, out, count);
    }
  });
}

}  // namespace stagecoach
