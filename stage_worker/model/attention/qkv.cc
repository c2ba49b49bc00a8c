#include <algorithm>
#include <vector>

#include "stage_worker/model/attention/attention.h"
#include "stage_worker/model/layers/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// Rotates the rope.dims elements at x by the angles of a row of the step, if the layer rotates.
void Rotate(const StageLayer& layer, int64_t row, const StepContext& step, float* x) {
  if (layer.angles < 0) return;
  const RopeParameters& rope = layer.spec.attention.rope;
  const StepAngles& angles = step.scratch.angles[static_cast<size_t>(layer.angles)];
  step.kernels.rope(x, angles.cos.as<float>() + row * angles.pairs, angles.sin.as<float>() + row * angles.pairs,
                    static_cast<int>(rope.dims), rope.pairs == RopePairs::kHalves);
}

// Where a row's key and value are kept.
struct KvPlace {
  BlockId block;
  int32_t tile, lane;

  static KvPlace Of(const StageLayer& layer, int64_t row, const StepContext& step) {
    const int32_t block_tokens = step.PoolOf(layer.spec).shape().block_tokens;
    const StepRow& at = step.plan.rows()[static_cast<size_t>(row)];
    const int32_t offset = static_cast<int32_t>(at.position % block_tokens);
    return {at.tables[layer.spec.block_group][at.position / block_tokens], offset / kTilePositions,
            offset % kTilePositions};
  }
};

// Writes a row's key [key_dim], or its value [H], of a KV head to its place in the pool.
enum class Kv { kKey, kValue };
void Store(Kv what, const StageLayer& layer, int64_t kv_head, int64_t row, const StepContext& step, const float* head) {
  KvPool& pool = step.PoolOf(layer.spec);
  const KvType type = pool.shape().type;
  const KvPlace at = KvPlace::Of(layer, row, step);
  const AttentionSpec& spec = layer.spec.attention;
  if (what == Kv::kKey) {
    step.kernels.store_k(type, head, static_cast<int>(spec.key_dim()), at.lane,
                         pool.KTile(layer.pool_layer, at.block, kv_head, at.tile));
  } else {
    step.kernels.store_v(type, head, static_cast<int>(spec.head_dim), at.lane,
                         pool.VTile(layer.pool_layer, at.block, kv_head, at.tile));
  }
}

// Asks the memory for the tiles that keys of few rows are written to. A key has a place in every line of its tile, and
// nobody has read these lines since the token before: without this, storing waits for each.
void AskForKeyTiles(const StageLayer& layer, Gang::Part kv_heads, const StepContext& step) {
  constexpr int64_t kAskedRows = 8;  // of more, the lines would be gone again before they are used
  constexpr size_t kLineBytes = 64;
  const KvPool& pool = step.PoolOf(layer.spec);
  const size_t bytes = KvTileBytes(pool.shape().type, layer.spec.attention.key_dim());
  if (step.plan.row_count() > kAskedRows) return;
  for (int64_t row = 0; row < step.plan.row_count(); ++row) {
    const KvPlace at = KvPlace::Of(layer, row, step);
    for (int64_t head = kv_heads.begin; head < kv_heads.end; ++head) {
      const uint8_t* const tile = pool.KTile(layer.pool_layer, at.block, head, at.tile);
      for (size_t line = 0; line < bytes; line += kLineBytes) __builtin_prefetch(tile + line, 1, 2);
    }
  }
}

// --- latent attention ------------------------------------------------------------------------------------------------

// What the cache keeps of a row: the latent's norm, and the key with its angles.
void StoreRow(const StageLayer& layer, int64_t row, const StepContext& step) {
  const AttentionSpec& spec = layer.spec.attention;
  float* const kept = step.scratch.latent.row.as<float>() + row * step.scratch.latent.sizes.row_stride;
  step.kernels.rms_norm(kept, layer.weights.latent.kv_a_norm.data(), spec.kv_rank, layer.spec.norm_eps, kept);
  Rotate(layer, row, step, kept + spec.kv_rank);
  Store(Kv::kKey, layer, 0, row, step, kept);
}

// A head's own matrix times inputs of all rows: input_of(row) gives one [matrix.cols], use(row, output) takes one
// [matrix.rows]. One thread does all of it.
template <typename InputOf, typename Use>
void RunHeadMatrix(const PackedMatrix& matrix, const InputForms& forms, const StepContext& step, const Worker& worker,
                   const InputOf& input_of, const Use& use) {
  worker.Reads(matrix.bytes());
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

void ProjectLatent(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  const AttentionSpec& spec = layer.spec.attention;
  const LatentWeights& w = layer.weights.latent;
  LatentScratch& latent = step.scratch.latent;
  ProjectPanels(StepPart::kLatent, w.kv_a, {}, input, step, worker, latent.row, latent.sizes.row_stride);
  if (spec.q_rank == 0) {
    ProjectPanels(StepPart::kLatent, layer.weights.q, {}, input, step, worker, latent.q, latent.sizes.q_stride);
  } else {
    ProjectPanels(StepPart::kLatent, w.q_a, {}, input, step, worker, latent.q_a, latent.sizes.q_a_stride);
  }
  worker.Barrier();
  worker.Enter(StepPart::kHeads);
  const Gang::Part rows = worker.Share(step.plan.row_count());
  for (int64_t row = rows.begin; row < rows.end; ++row) StoreRow(layer, row, step);
  if (spec.q_rank > 0) {
    float* const normed = step.scratch.workers[static_cast<size_t>(worker.thread)].row.as<float>();
    const Activations q_b = PrepareInput(layer.forms.q_b, spec.q_rank, step, worker, [&](int64_t row) {
      step.kernels.rms_norm(latent.q_a.as<float>() + row * latent.sizes.q_a_stride, w.q_a_norm.data(), spec.q_rank,
                            layer.spec.norm_eps, normed);
      return static_cast<const float*>(normed);
    });
    ProjectPanels(StepPart::kLatent, w.q_b, {}, q_b, step, worker, latent.q, latent.sizes.q_stride);
    worker.Barrier();
  }
  worker.Enter(StepPart::kLatent);
  worker.Divide(spec.heads, {.most = 1}, [&](WorkRun run) { Absorb(layer, run.items.begin, step, worker); });
}

Activations LatentOutput(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  const AttentionSpec& spec = layer.spec.attention;
  LatentScratch& latent = step.scratch.latent;
  worker.Enter(StepPart::kLatent);
  worker.Divide(spec.heads, {.most = 1}, [&](WorkRun run) {
    const int64_t head = run.items.begin;
    RunHeadMatrix(
        layer.weights.latent.v_b[static_cast<size_t>(head)], layer.forms.v_b, step, worker,
        [&](int64_t row) {
          return step.scratch.attended.as<float>() + row * step.scratch.attended_stride + head * spec.kv_rank;
        },
        [&](int64_t row, const float* values) {
          std::copy_n(values, spec.value_dim,
                      latent.output.as<float>() + row * latent.sizes.output_stride + head * spec.value_dim);
        });
  });
  worker.Barrier();
  return PrepareInput(layer.forms.output, spec.output_width(), step, worker, [&](int64_t row) {
    return static_cast<const float*>(latent.output.as<float>() + row * latent.sizes.output_stride);
  });
}

// --- q, k and v ------------------------------------------------------------------------------------------------------

// What a head of q or k still needs once its matrix product is there.
void NormAndRotate(const StageLayer& layer, const std::vector<float>& norm, int64_t row, const StepContext& step,
                   float* head) {
  const AttentionSpec& spec = layer.spec.attention;
  if (spec.qk_norm == QkNorm::kHeads) {
    step.kernels.rms_norm(head, norm.data(), spec.head_dim, layer.spec.norm_eps, head);
  }
  Rotate(layer, row, step, head);
}

// Some heads of one of the three matrices, its output in scratch and what to do with a finished head.
template <typename Finish>
void RunHeads(const PackedMatrix& matrix, const std::vector<float>& bias, const Activations& input, int64_t head_dim,
              const StepContext& step, const Worker& worker, Gang::Part heads, float* out, int64_t stride,
              const Finish& finish) {
  const int64_t panels = head_dim / kPanelRows, rows = step.plan.row_count();
  // Blocks of whole heads, which are finished while they are in the cache.
  const int64_t block_panels = std::max<int64_t>(1, BlockPanels(rows) / panels) * panels;
  const Gang::Part all = {heads.begin * panels, heads.end * panels};
  ForEachBlock(all, block_panels, rows, [&](Gang::Part block, int64_t first, int64_t count) {
    float* const block_out = out + first * stride + block.begin * kPanelRows;
    Project(step.kernels, matrix, bias, RowsFrom(input, matrix.cols, first), count, block, block_out, stride);
    worker.Enter(StepPart::kHeads);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t head = block.begin / panels; head < block.end / panels; ++head) {
        finish(head, first + row, out + (first + row) * stride + head * head_dim);
      }
    }
    worker.Enter(StepPart::kQkv);
  });
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
  if (spec.gated)
    ProjectPanels(StepPart::kQkv, w.attn_gate, {}, input, step, worker, scratch.gates, scratch.gate_stride);
  const auto finish_q = [&](int64_t, int64_t row, float* at) { NormAndRotate(layer, w.q_norm, row, step, at); };
  const auto finish_k = [&](int64_t head, int64_t row, float* at) {
    NormAndRotate(layer, w.k_norm, row, step, at);
    Store(Kv::kKey, layer, head, row, step, at);
  };
  const auto finish_v = [&](int64_t head, int64_t row, float* at) { Store(Kv::kValue, layer, head, row, step, at); };

  if (const QkvHeads shape = QkvHeads::Of(spec); SharesWholeHeads(shape, worker.threads())) {
    worker.Enter(StepPart::kQkv);
    worker.AllRead(w.q.bytes() + w.k.bytes() + w.v.bytes());
    AskForKeyTiles(layer, ShareHeads(shape, worker.thread, worker.threads()).k, step);
    const RunLength length = PanelRuns(w.q, spec.head_dim / kPanelRows, step.plan.row_count());
    worker.Divide(shape.all(), length, [&](WorkRun run) {
      const QkvShare heads = shape.Within(run.items);
      RunHeads(w.q, w.q_bias, input, spec.head_dim, step, worker, heads.q, q, scratch.q_stride, finish_q);
      RunHeads(w.k, w.k_bias, input, spec.head_dim, step, worker, heads.k, k, scratch.kv_stride, finish_k);
      RunHeads(w.v, w.v_bias, input, spec.head_dim, step, worker, heads.v, v, scratch.kv_stride, finish_v);
    });
    return;
  }
  ProjectPanels(StepPart::kQkv, w.q, w.q_bias, input, step, worker, scratch.q, scratch.q_stride);
  ProjectPanels(StepPart::kQkv, w.k, w.k_bias, input, step, worker, scratch.k, scratch.kv_stride);
  ProjectPanels(StepPart::kQkv, w.v, w.v_bias, input, step, worker, scratch.v, scratch.kv_stride);
  worker.Barrier();
  worker.Enter(StepPart::kHeads);
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

Activations Attended(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  if (layer.spec.attention.latent()) return LatentOutput(layer, step, worker);
  return PrepareInput(layer.forms.output, layer.spec.attention.output_width(), step, worker, [&](int64_t row) {
    return step.scratch.attended.as<float>() + row * step.scratch.attended_stride;
  });
}

}  // namespace stagecoach
