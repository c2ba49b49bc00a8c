#include "stage_worker/model/transformer_layer.h"

#include <vector>

#include "stage_worker/model/attention.h"
#include "stage_worker/model/ffn.h"
#include "stage_worker/model/projection.h"
#include "stage_worker/model/qkv.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// The input of the next product: rows that `row_of` gives as floats [cols], in the forms its readers want. With few
// rows each thread prepares them all for itself, which costs less than a barrier; otherwise they are shared and a
// barrier follows.
template <typename RowOf>
Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         const RowOf& row_of) {
  const int64_t rows = step.plan.row_count();
  const bool few = rows <= kFewRows;
  MatmulInput& input = few ? step.scratch.workers[static_cast<size_t>(worker.thread)].input : step.scratch.input;
  const Gang::Part part = few ? Gang::Part{0, rows} : worker.Share(rows);
  for (int64_t row = part.begin; row < part.end; ++row) {
    input.Set(step.kernels, forms, row, cols, 0, row_of(row), cols);
  }
  if (!few) worker.Barrier();
  return input.View(cols);
}

// RMSNorm(x) for x [rows, D].
Activations Normalize(const float* x, const std::vector<float>& norm, const InputForms& forms, const StepContext& step,
                      const Worker& worker) {
  const int64_t hidden = step.hyper.hidden;
  float* const normed = step.scratch.workers[static_cast<size_t>(worker.thread)].row.as<float>();
  return PrepareInput(forms, hidden, step, worker, [&](int64_t row) {
    step.kernels.rms_norm(x + row * hidden, norm.data(), hidden, step.hyper.rms_eps, normed);
    return normed;
  });
}

// x [rows, D] += matrix * input + bias, in blocks of panels whose outputs stay in the cache. Shared by panels.
void AddProjection(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
                   const StepContext& step, const Worker& worker, float* x) {
  const int64_t rows = step.plan.row_count(), hidden = step.hyper.hidden;
  const Gang::Part panels = SharePanels(matrix, worker.thread, worker.threads());
  float* const delta = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  ForEachBlock(panels, BlockPanels(rows), rows, [&](Gang::Part block, int64_t first, int64_t count) {
    const int64_t stride = (block.end - block.begin) * kPanelRows;
    Project(step.kernels, matrix, bias, RowsFrom(input, matrix.cols, first), count, block, delta, stride);
    const Gang::Part columns = OutputColumns(matrix, block);
    for (int64_t row = 0; row < count; ++row) {
      step.kernels.add(delta + row * stride, columns.end - columns.begin, x + (first + row) * hidden + columns.begin);
    }
  });
}

}  // namespace

// Five phases with a barrier after each (the caller's after the last), and with many rows one more after each input.
void RunTransformerLayer(const LayerWeights& weights, int64_t layer, const StepContext& step, const Worker& worker,
                         float* x) {
  StepScratch& scratch = step.scratch;
  if (worker.thread == 0) scratch.next_attention_work.store(0, std::memory_order_relaxed);
  const InputForms qkv_forms = InputForms::Of(step.kernels, {&weights.q, &weights.k, &weights.v});
  ProjectQkv(weights, layer, Normalize(x, weights.attn_norm, qkv_forms, step, worker), step, worker);
  worker.Barrier();
  Attend(layer, step, worker);
  worker.Barrier();
  const InputForms output_forms = InputForms::Of(step.kernels, {&weights.attn_output});
  const Activations attended = PrepareInput(output_forms, weights.attn_output.cols, step, worker, [&](int64_t row) {
    return scratch.attended.as<float>() + row * scratch.q_stride;
  });
  AddProjection(weights.attn_output, weights.attn_output_bias, attended, step, worker, x);
  worker.Barrier();
  const InputForms ffn_forms = InputForms::Of(step.kernels, {&weights.gate, &weights.up});
  RunGatedUp(weights, Normalize(x, weights.ffn_norm, ffn_forms, step, worker), step, worker);
  worker.Barrier();
  AddProjection(weights.down, weights.down_bias, scratch.ffn_input.View(weights.down.cols), step, worker, x);
}

}  // namespace stagecoach
