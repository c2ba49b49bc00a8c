#include "stage_worker/weights/first_touch.h"

#include <cstddef>

namespace stagecoach {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

std::vector<absl::Span<const uint8_t>> SharesOfWeights(const StageWeights& weights, const QkvHeads& shape, int thread,
                                                       int threads) {
  std::vector<absl::Span<const uint8_t>> shares;
  const auto add = [&](const PackedMatrix& matrix, Gang::Part part) {
    const PanelSpan span = matrix.Panels(part.begin, part.end);
    if (span.panels > 0)
      shares.emplace_back(span.data, static_cast<size_t>(span.panels) * PanelBytes(span.type, span.cols));
  };
  const auto add_panels = [&](const PackedMatrix& matrix) { add(matrix, SharePanels(matrix, thread, threads)); };
  const QkvShare heads = ShareHeads(shape, thread, threads);
  const auto add_heads = [&](const PackedMatrix& matrix, Gang::Part part) {
    if (!SharesWholeHeads(shape, threads)) return add_panels(matrix);
    const int64_t panels = shape.head_dim / kPanelRows;
    add(matrix, {part.begin * panels, part.end * panels});
  };
  for (const LayerWeights& layer : weights.layers) {
    add_heads(layer.q, heads.q);
    add_heads(layer.k, heads.k);
    add_heads(layer.v, heads.v);
    add_panels(layer.attn_output);
    add(layer.gate, SharePanelPairs(layer.gate, thread, threads));
    add(layer.up, SharePanelPairs(layer.up, thread, threads));
    add_panels(layer.down);
  }
  if (weights.embedding.data != nullptr) add_panels(weights.embedding);
  if (weights.output.data != nullptr) add_panels(weights.output);
  return shares;
}

void TouchShares(const QkvHeads& shape, int thread, int threads, StageWeights* weights) {
  uint8_t* const memory = weights->panels.data();
  for (absl::Span<const uint8_t> share : SharesOfWeights(*weights, shape, thread, threads)) {
    uint8_t* const begin = memory + (share.data() - memory);
    for (size_t at = 0; at < share.size(); at += kPageBytes) begin[at] = 0;
  }
}

}  // namespace stagecoach
