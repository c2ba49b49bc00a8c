#include "stage_worker/weights/panel_shares.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr size_t kPageBytes = 4096;

// Any thread may compute any part of an expert, and a row's few experts should keep all memory controllers busy: so
// threads touch the experts' matrices in turns, in runs of about a huge page.
constexpr size_t kRunBytes = size_t{2} << 20;

template <typename Add>
void AddRunsInTurns(const ExpertWeights& experts, int thread, int threads, const Add& add) {
  int64_t turn = 0;
  for (const std::vector<PackedMatrix>* matrices : {&experts.gate, &experts.up, &experts.down}) {
    for (const PackedMatrix& matrix : *matrices) {
      const size_t panel_bytes = PanelBytes(matrix.type, matrix.cols);
      const int64_t run = static_cast<int64_t>(std::max<size_t>(1, kRunBytes / panel_bytes));
      for (int64_t panel = 0; panel < matrix.panels(); panel += run, ++turn) {
        if (turn % threads == thread) add(matrix, Gang::Part{panel, std::min(panel + run, matrix.panels())});
      }
    }
  }
}

}  // namespace

std::vector<absl::Span<const uint8_t>> SharesOfWeights(const StageWeights& weights, absl::Span<const LayerSpec> specs,
                                                       int thread, int threads) {
  CHECK_EQ(specs.size(), weights.layers.size());
  std::vector<absl::Span<const uint8_t>> shares;
  const auto add = [&](const PackedMatrix& matrix, Gang::Part part) {
    if (part.begin == part.end) return;
    const PanelSpan span = matrix.Panels(part.begin, part.end);
    shares.emplace_back(span.data, static_cast<size_t>(span.panels) * PanelBytes(span.type, span.cols));
  };
  const auto add_panels = [&](const PackedMatrix& matrix) { add(matrix, SharePanels(matrix, thread, threads)); };
  const auto add_qkv = [&](const QkvHeads& shape, const LayerWeights& layer) {
    const QkvShare heads = ShareHeads(shape, thread, threads);
    const auto add_heads = [&](const PackedMatrix& matrix, Gang::Part part) {
      if (!SharesWholeHeads(shape, threads)) return add_panels(matrix);
      const int64_t panels = shape.head_dim / kPanelRows;
      add(matrix, {part.begin * panels, part.end * panels});
    };
    add_heads(layer.q, heads.q);
    add_heads(layer.k, heads.k);
    add_heads(layer.v, heads.v);
  };
  const auto add_latent = [&](const AttentionSpec& spec, const LayerWeights& layer) {
    for (const PackedMatrix* matrix : {&layer.q, &layer.latent.q_a, &layer.latent.q_b, &layer.latent.kv_a}) {
      add_panels(*matrix);
    }
    const Gang::Part heads = Gang::Share(spec.heads, thread, threads);
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      for (const std::vector<PackedMatrix>* of_heads : {&layer.latent.k_b, &layer.latent.v_b}) {
        const PackedMatrix& matrix = (*of_heads)[static_cast<size_t>(head)];
        add(matrix, {0, matrix.panels()});
      }
    }
  };
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    if (specs[i].recurrent()) {
      const DeltaNetWeights& net = layer.delta_net;
      for (const PackedMatrix* matrix : {&net.qkv, &net.z, &net.beta, &net.alpha}) add_panels(*matrix);
    } else if (specs[i].attention.latent()) {
      add_latent(specs[i].attention, layer);
    } else {
      add_qkv(QkvHeads::Of(specs[i].attention), layer);
      add_panels(layer.attn_gate);
    }
    add_panels(layer.attn_output);
    add(layer.gate, SharePanelPairs(layer.gate, thread, threads));
    add(layer.up, SharePanelPairs(layer.up, thread, threads));
    add_panels(layer.down);
    add_panels(layer.experts.router);
    AddRunsInTurns(layer.experts, thread, threads, add);
  }
  if (weights.embedding.data != nullptr) add_panels(weights.embedding);
  if (weights.output.data != nullptr) add_panels(weights.output);
  return shares;
}

void TouchShares(absl::Span<const LayerSpec> specs, int thread, int threads, StageWeights* weights,
                 std::atomic<uint64_t>* bytes_touched) {
  uint8_t* const memory = weights->panels.data();
  for (absl::Span<const uint8_t> share : SharesOfWeights(*weights, specs, thread, threads)) {
    uint8_t* const begin = memory + (share.data() - memory);
    for (size_t at = 0; at < share.size(); at += kPageBytes) begin[at] = 0;
    bytes_touched->fetch_add(share.size(), std::memory_order_relaxed);
  }
}

}  // namespace stagecoach
