#include "stage_worker/model/ffn.h"

#include "stage_worker/model/projection.h"

namespace stagecoach {

void RunGatedUp(const LayerWeights& weights, const StepContext& step, const Worker& worker) {
  StepScratch& scratch = step.scratch;
  const int64_t rows = step.plan.row_count(), stride = scratch.ffn_stride;
  const Activations input = scratch.input.View(scratch.normed.as<float>(), scratch.hidden_stride);
  // The same panels of both matrices, so that the product needs no other thread's part.
  const Gang::Part panels = worker.Share(weights.gate.panels());
  float* gate = scratch.gate.as<float>();
  float* up = scratch.up.as<float>();
  Project(step.kernels, weights.gate, weights.gate_bias, input, rows, panels, gate, stride);
  Project(step.kernels, weights.up, weights.up_bias, input, rows, panels, up, stride);
  const Gang::Part columns = OutputColumns(weights.gate, panels);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * stride + columns.begin;
    step.kernels.swiglu(gate + at, up + at, columns.end - columns.begin, gate + at);
  }
}

}  // namespace stagecoach
