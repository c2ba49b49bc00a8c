#include "stage_worker/model/ffn.h"

#include "stage_worker/model/activation.h"
#include "stage_worker/model/expert_ffn.h"
#include "stage_worker/model/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// scratch.ffn_input [rows, F] = act(Wgate m, Wup m), in the forms that the down projection wants. Shared by output
// panels.
void GateAndUp(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  const LayerWeights& w = layer.weights;
  const int64_t rows = step.plan.row_count();
  float* const gate = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  // The same panels of both matrices, so that the product needs no other thread's part.
  const Gang::Part panels = SharePanelPairs(w.gate, worker.thread, worker.threads());
  ForEachBlock(panels, BlockPanels(rows), rows, [&](Gang::Part block, int64_t first, int64_t block_rows) {
    const int64_t stride = (block.end - block.begin) * kPanelRows;
    float* const up = gate + block_rows * stride;
    const Activations in = RowsFrom(input, w.gate.cols, first);
    Project(step.kernels, w.gate, w.gate_bias, in, block_rows, block, gate, stride);
    Project(step.kernels, w.up, w.up_bias, in, block_rows, block, up, stride);
    const Gang::Part columns = OutputColumns(w.gate, block);
    const int64_t count = columns.end - columns.begin;
    for (int64_t row = 0; row < block_rows; ++row) {
      float* const out = gate + row * stride;
      ApplyActivation(step.kernels, layer.spec.ffn.activation, out, up + row * stride, count, out);
      step.scratch.ffn_input.Set(step.kernels, layer.forms.down, first + row, w.down.cols, columns.begin, out, count);
    }
  });
}

}  // namespace

void AddFfn(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
            float* out) {
  if (layer.spec.ffn.kind == FfnKind::kExperts) return AddExperts(layer, input, step, worker, out);
  GateAndUp(layer, input, step, worker);
  worker.Barrier();
  AddProjection(layer.weights.down, layer.weights.down_bias, step.scratch.ffn_input.View(layer.spec.ffn.width), step,
                worker, out);
}

}  // namespace stagecoach
