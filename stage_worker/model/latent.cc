#include "stage_worker/model/latent.h"

#include <algorithm>

#include "stage_worker/model/key_place.h"
#include "stage_worker/model/layer_input.h"
#include "stage_worker/model/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// out [rows, stride] = matrix * input, shared by panels.
void RunMatrix(const PackedMatrix& matrix, const Activations& input, const StepContext& step, const Worker& worker,
               AlignedBuffer& out, int64_t stride) {
  const Gang::Part panels = SharePanels(matrix, worker.thread, worker.threads());
  Project(step.kernels, matrix, {}, input, step.plan.row_count(), panels, out.as<float>() + panels.begin * kPanelRows,
          stride);
}

// What the cache keeps of a row: the latent's norm, and the key with its angles.
void StoreRow(const StageLayer& layer, int64_t row, const StepContext& step) {
  const AttentionSpec& spec = layer.spec.attention;
  float* const kept = step.scratch.latent.row.as<float>() + row * step.scratch.latent.sizes.row_stride;
  step.kernels.rms_norm(kept, layer.weights.latent.kv_a_norm.data(), spec.kv_rank, layer.spec.norm_eps, kept);
  Rotate(layer, row, step, kept + spec.kv_rank);
  StoreK(layer, 0, row, step, kept);
}

// A head's own matrix times inputs of all rows: input_of(row) gives one [matrix.cols], use(row, output) takes one
// [matrix.rows]. One thread does all of it.
template <typename InputOf, typename Use>
void RunHeadMatrix(const PackedMatrix& matrix, const InputForms& forms, const StepContext& step, const Worker& worker,
                   const InputOf& input_of, const Use& use) {
  LatentScratch::Head& head = step.scratch.latent.heads[static_cast<size_t>(worker.thread)];
  float* const out = head.output.as<float>();
  const int64_t rows = step.plan.row_count(), stride = matrix.padded_rows();
  for (int64_t first = 0; first < rows; first += kLatentRows) {
    const int64_t count = std::min(kLatentRows, rows - first);
    for (int64_t i = 0; i < count; ++i) {
      head.input.Set(step.kernels, forms, i, matrix.cols, 0, input_of(first + i), matrix.cols);
    }
    Project(step.kernels, matrix, {}, head.input.View(matrix.cols), count, {0, matrix.panels()}, out, stride);
    for (int64_t i = 0; i < count; ++i) use(first + i, out + i * stride);
  }
}

// scratch.q of one head: [n | p] becomes (Wk_b n | rotated p).
void Absorb(const StageLayer& layer, int64_t head, const StepContext& step, const Worker& worker) {
  const AttentionSpec& spec = layer.spec.attention;
  LatentScratch& latent = step.scratch.latent;
  const int64_t plain = spec.head_dim - spec.rope.dims;
  const auto query = [&](int64_t row) {
    return latent.q.as<float>() + row * latent.sizes.q_stride + head * spec.head_dim;
  };
  RunHeadMatrix(layer.weights.latent.k_b[static_cast<size_t>(head)], layer.forms.k_b, step, worker, query,
                [&](int64_t row, const float* absorbed) {
                  float* const out = step.scratch.q.as<float>() + row * step.scratch.q_stride + head * spec.key_dim();
                  std::copy_n(absorbed, spec.kv_rank, out);
                  std::copy_n(query(row) + plain, spec.rope.dims, out + spec.kv_rank);
                  Rotate(layer, row, step, out + spec.kv_rank);
                });
}

}  // namespace

void ProjectLatent(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  const AttentionSpec& spec = layer.spec.attention;
  const LatentWeights& w = layer.weights.latent;
  LatentScratch& latent = step.scratch.latent;
  RunMatrix(w.kv_a, input, step, worker, latent.row, latent.sizes.row_stride);
  if (spec.q_rank == 0) {
    RunMatrix(layer.weights.q, input, step, worker, latent.q, latent.sizes.q_stride);
  } else {
    RunMatrix(w.q_a, input, step, worker, latent.q_a, latent.sizes.q_a_stride);
  }
  worker.Barrier();
  const Gang::Part rows = worker.Share(step.plan.row_count());
  for (int64_t row = rows.begin; row < rows.end; ++row) StoreRow(layer, row, step);
  if (spec.q_rank > 0) {
    float* const normed = step.scratch.workers[static_cast<size_t>(worker.thread)].row.as<float>();
    const Activations q_b = PrepareInput(layer.forms.q_b, spec.q_rank, step, worker, [&](int64_t row) {
      step.kernels.rms_norm(latent.q_a.as<float>() + row * latent.sizes.q_a_stride, w.q_a_norm.data(), spec.q_rank,
                            layer.spec.norm_eps, normed);
      return static_cast<const float*>(normed);
    });
    RunMatrix(w.q_b, q_b, step, worker, latent.q, latent.sizes.q_stride);
    worker.Barrier();
  }
  const Gang::Part heads = worker.Share(spec.heads);
  for (int64_t head = heads.begin; head < heads.end; ++head) Absorb(layer, head, step, worker);
}

Activations LatentOutput(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  const AttentionSpec& spec = layer.spec.attention;
  LatentScratch& latent = step.scratch.latent;
  const Gang::Part heads = worker.Share(spec.heads);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    RunHeadMatrix(
        layer.weights.latent.v_b[static_cast<size_t>(head)], layer.forms.v_b, step, worker,
        [&](int64_t row) {
          return step.scratch.attended.as<float>() + row * step.scratch.attended_stride + head * spec.kv_rank;
        },
        [&](int64_t row, const float* values) {
          std::copy_n(values, spec.value_dim,
                      latent.output.as<float>() + row * latent.sizes.output_stride + head * spec.value_dim);
        });
  }
  worker.Barrier();
  return PrepareInput(layer.forms.output, spec.output_width(), step, worker, [&](int64_t row) {
    return static_cast<const float*>(latent.output.as<float>() + row * latent.sizes.output_stride);
  });
}

}  // namespace stagecoach
