#include "stage_worker/model/transformer_layer.h"

#include <initializer_list>
#include <vector>

#include "stage_worker/model/attention.h"
#include "stage_worker/model/ffn.h"
#include "stage_worker/model/projection.h"

namespace stagecoach {
namespace {

// scratch.normed [rows, D] = RMSNorm(x), and its int8 form for the matrices that read it. Shared by rows.
void Normalize(const float* x, const std::vector<float>& norm, std::initializer_list<const PackedMatrix*> readers,
               const StepContext& step, const Worker& worker) {
  const int64_t hidden = step.hyper.hidden;
  StepScratch& scratch = step.scratch;
  const Gang::Part part = worker.Share(step.plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    step.kernels.rms_norm(x + row * hidden, norm.data(), hidden, step.hyper.rms_eps,
                          scratch.normed.as<float>() + row * scratch.hidden_stride);
  }
  if (!MatmulInput::WantsInt8(step.kernels, readers)) return;
  scratch.input.Quantize(step.kernels, scratch.normed.as<float>(), scratch.hidden_stride, hidden, part);
}

// x += matrix * in + bias. Two phases: the int8 form of the input, shared by rows; the product, shared by output
// panels.
void AddProjection(const PackedMatrix& matrix, const std::vector<float>& bias, const float* in, int64_t in_stride,
                   const StepContext& step, const Worker& worker, float* x) {
  StepScratch& scratch = step.scratch;
  const int64_t rows = step.plan.row_count(), hidden = step.hyper.hidden, stride = scratch.hidden_stride;
  if (MatmulInput::WantsInt8(step.kernels, {&matrix})) {
    scratch.input.Quantize(step.kernels, in, in_stride, matrix.cols, worker.Share(rows));
    worker.Barrier();
  }
  const Gang::Part panels = worker.Share(matrix.panels());
  float* delta = scratch.delta.as<float>();
  Project(step.kernels, matrix, bias, scratch.input.View(in, in_stride), rows, panels, delta, stride);
  const Gang::Part columns = OutputColumns(matrix, panels);
  for (int64_t row = 0; row < rows; ++row) {
    step.kernels.add(delta + row * stride + columns.begin, columns.end - columns.begin,
                     x + row * hidden + columns.begin);
  }
}

}  // namespace

void RunTransformerLayer(const LayerWeights& weights, int64_t layer, const StepContext& step, const Worker& worker,
                         float* x) {
  StepScratch& scratch = step.scratch;
  if (worker.thread == 0) scratch.next_attention_work.store(0, std::memory_order_relaxed);
  Normalize(x, weights.attn_norm, {&weights.q, &weights.k, &weights.v}, step, worker);
  worker.Barrier();
  ProjectQkv(weights, step, worker);
  worker.Barrier();
  PlaceHeads(weights, layer, step, worker);
  worker.Barrier();
  Attend(layer, step, worker);
  worker.Barrier();
  AddProjection(weights.attn_output, weights.attn_output_bias, scratch.attended.as<float>(), scratch.q_stride, step,
                worker, x);
  worker.Barrier();
  Normalize(x, weights.ffn_norm, {&weights.gate, &weights.up}, step, worker);
  worker.Barrier();
  RunGatedUp(weights, step, worker);
  worker.Barrier();
  AddProjection(weights.down, weights.down_bias, scratch.gate.as<float>(), scratch.ffn_stride, step, worker, x);
}

}  // namespace stagecoach
