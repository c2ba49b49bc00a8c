#include "stage_worker/model/qkv.h"

#include <algorithm>
#include <vector>

#include "stage_worker/model/key_place.h"
#include "stage_worker/model/latent.h"
#include "stage_worker/model/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// What a head of q or k still needs once its matrix product is there.
void NormAndRotate(const StageLayer& layer, const std::vector<float>& norm, int64_t row, const StepContext& step,
                   float* head) {
  const AttentionSpec& spec = layer.spec.attention;
  if (spec.qk_norm == QkNorm::kHeads) {
    step.kernels.rms_norm(head, norm.data(), spec.head_dim, layer.spec.norm_eps, head);
  }
  Rotate(layer, row, step, head);
}

// One of the three matrices, its output in scratch and what to do with a finished head.
template <typename Finish>
void RunHeads(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input, int64_t head_dim,
              const StepContext& step, Gang::Part heads, float* out, int64_t stride, const Finish& finish) {
  const int64_t panels = head_dim / kPanelRows, rows = step.plan.row_count();
  // Blocks of whole heads, which are finished while they are in the cache.
  const int64_t block_panels = std::max<int64_t>(1, BlockPanels(rows) / panels) * panels;
  const Gang::Part all = {heads.begin * panels, heads.end * panels};
  ForEachBlock(all, block_panels, rows, [&](Gang::Part block, int64_t first, int64_t count) {
    float* const block_out = out + first * stride + block.begin * kPanelRows;
    Project(step.kernels, matrix, bias, RowsFrom(input, matrix.cols, first), count, block, block_out, stride);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t head = block.begin / panels; head < block.end / panels; ++head) {
        finish(head, first + row, out + (first + row) * stride + head * head_dim);
      }
    }
  });
}

void RunPanels(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input,
               const StepContext& step, const Worker& worker, float* out, int64_t stride) {
  const Gang::Part panels = worker.Share(matrix.panels());
  Project(step.kernels, matrix, bias, input, step.plan.row_count(), panels, out + panels.begin * kPanelRows, stride);
}

// Of QkNorm::kWhole, the rows of q and k, once they are there: who has a row norms it before its heads are rotated.
void NormWholeRows(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  if (layer.spec.attention.qk_norm != QkNorm::kWhole) return;
  const LayerWeights& w = layer.weights;
  StepScratch& scratch = step.scratch;
  const Gang::Part part = worker.Share(2 * step.plan.row_count());
  for (int64_t i = part.begin; i < part.end; ++i) {
    const bool is_q = i % 2 == 0;
    const std::vector<float>& norm = is_q ? w.q_norm : w.k_norm;
    float* const row =
        is_q ? scratch.q.as<float>() + i / 2 * scratch.q_stride : scratch.k.as<float>() + i / 2 * scratch.kv_stride;
    step.kernels.rms_norm(row, norm.data(), static_cast<int64_t>(norm.size()), layer.spec.norm_eps, row);
  }
  worker.Barrier();
}

}  // namespace

void ProjectQkv(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  const LayerWeights& w = layer.weights;
  const AttentionSpec& spec = layer.spec.attention;
  if (spec.latent()) return ProjectLatent(layer, input, step, worker);
  StepScratch& scratch = step.scratch;
  float* const q = scratch.q.as<float>();
  float* const k = scratch.k.as<float>();
  float* const v = scratch.v.as<float>();
  const auto finish_q = [&](int64_t, int64_t row, float* at) { NormAndRotate(layer, w.q_norm, row, step, at); };
  const auto finish_k = [&](int64_t head, int64_t row, float* at) {
    NormAndRotate(layer, w.k_norm, row, step, at);
    StoreK(layer, head, row, step, at);
  };
  const auto finish_v = [&](int64_t head, int64_t row, float* at) { StoreV(layer, head, row, step, at); };

  if (const QkvHeads shape = QkvHeads::Of(spec); SharesWholeHeads(shape, worker.threads())) {
    const QkvShare share = ShareHeads(shape, worker.thread, worker.threads());
    RunHeads(w.q, w.q_bias, input, spec.head_dim, step, share.q, q, scratch.q_stride, finish_q);
    RunHeads(w.k, w.k_bias, input, spec.head_dim, step, share.k, k, scratch.kv_stride, finish_k);
    RunHeads(w.v, w.v_bias, input, spec.head_dim, step, share.v, v, scratch.kv_stride, finish_v);
    return;
  }
  RunPanels(w.q, w.q_bias, input, step, worker, q, scratch.q_stride);
  RunPanels(w.k, w.k_bias, input, step, worker, k, scratch.kv_stride);
  RunPanels(w.v, w.v_bias, input, step, worker, v, scratch.kv_stride);
  worker.Barrier();
  NormWholeRows(layer, step, worker);
  const int64_t heads_per_row = spec.heads + spec.kv_heads;
  const Gang::Part part = worker.Share(step.plan.row_count() * heads_per_row);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t row = i / heads_per_row, head = i % heads_per_row;
    if (head < spec.heads) {
      finish_q(head, row, q + row * scratch.q_stride + head * spec.head_dim);
      continue;
    }
    const int64_t kv_head = head - spec.heads, at = row * scratch.kv_stride + kv_head * spec.head_dim;
    finish_k(kv_head, row, k + at);
    finish_v(kv_head, row, v + at);
  }
}

}  // namespace stagecoach
