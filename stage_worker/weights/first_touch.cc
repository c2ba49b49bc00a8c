#include "stage_worker/weights/first_touch.h"

#include <cstddef>

#include "common/base/check.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

std::vector<absl::Span<const uint8_t>> SharesOfWeights(const StageWeights& weights, absl::Span<const LayerSpec> specs,
                                                       int thread, int threads) {
  CHECK_EQ(specs.size(), weights.layers.size());
  std::vector<absl::Span<const uint8_t>> shares;
  const auto add = [&](const PackedMatrix& matrix, Gang::Part part) {
    const PanelSpan span = matrix.Panels(part.begin, part.end);
    if (span.panels > 0)
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
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    if (!specs[i].attention.latent()) add_qkv(QkvHeads::Of(specs[i].attention), layer);
    add_panels(layer.attn_output);
    add(layer.gate, SharePanelPairs(layer.gate, thread, threads));
    add(layer.up, SharePanelPairs(layer.up, thread, threads));
    add_panels(layer.down);
  }
  if (weights.embedding.data != nullptr) add_panels(weights.embedding);
  if (weights.output.data != nullptr) add_panels(weights.output);
  return shares;
}

void TouchShares(absl::Span<const LayerSpec> specs, int thread, int threads, StageWeights* weights) {
  uint8_t* const memory = weights->panels.data();
  for (absl::Span<const uint8_t> share : SharesOfWeights(*weights, specs, thread, threads)) {
    uint8_t* const begin = memory + (share.data() - memory);
    for (size_t at = 0; at < share.size(); at += kPageBytes) begin[at] = 0;
  }
}

}  // namespace stagecoach
