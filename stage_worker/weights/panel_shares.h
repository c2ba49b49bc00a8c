#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_PANEL_SHARES_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_PANEL_SHARES_H_

// Which part of every matrix a thread reads first in each step (SharedWork), and so touches first at load: a page lies
// near the thread that first writes to it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/hyper_parameters.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// Heads of each of the three matrices.
struct QkvShare {
  Gang::Part q, k, v;
};

struct QkvHeads {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool apart = true;  // whether a head is finished without the others (QkNorm)

  static QkvHeads Of(const AttentionSpec& spec) {
    return {spec.heads, spec.kv_heads, spec.head_dim, spec.qk_norm != QkNorm::kWhole};
  }
  int64_t all() const { return heads + 2 * kv_heads; }

  // Which heads of each matrix a part of all heads, side by side, is.
  QkvShare Within(Gang::Part part) const {
    const auto within = [&part](int64_t first, int64_t count) -> Gang::Part {
      return {std::clamp<int64_t>(part.begin - first, 0, count), std::clamp<int64_t>(part.end - first, 0, count)};
    };
    return {within(0, heads), within(heads, kv_heads), within(heads + kv_heads, kv_heads)};
  }
};

// Whether threads share q, k and v by whole heads: heads are whole panels that are finished alone, and no thread gets
// more than an eighth above its fair share. Otherwise each matrix is shared by panels.
inline bool SharesWholeHeads(const QkvHeads& shape, int threads) {
  const int64_t most = (shape.all() + threads - 1) / threads;
  return shape.apart && shape.head_dim % kPanelRows == 0 && most * threads * 8 <= shape.all() * 9;
}

// A thread's heads of each matrix: its part of all heads side by side.
inline QkvShare ShareHeads(const QkvHeads& shape, int thread, int threads) {
  return shape.Within(Gang::Share(shape.all(), thread, threads));
}

// Of any other matrix.
inline Gang::Part SharePanels(const PackedMatrix& matrix, int thread, int threads) {
  return Gang::Share(matrix.panels(), thread, threads);
}

// Panels of gate and up are shared in pairs: 32 outputs are one group of the down projection's int8 input.
inline int64_t PanelPairs(const PackedMatrix& matrix) { return (matrix.panels() + 1) / 2; }
inline Gang::Part PanelsOfPairs(const PackedMatrix& matrix, Gang::Part pairs) {
  return {std::min(2 * pairs.begin, matrix.panels()), std::min(2 * pairs.end, matrix.panels())};
}
inline Gang::Part SharePanelPairs(const PackedMatrix& matrix, int thread, int threads) {
  return PanelsOfPairs(matrix, Gang::Share(PanelPairs(matrix), thread, threads));
}

// What a thread reads first of the weights in each step, as runs of panels; of experts, which any free thread computes,
// a fixed fraction of the huge pages. All threads' shares cover every byte of every matrix once. specs: of the stage's
// layers.
std::vector<absl::Span<const uint8_t>> SharesOfWeights(const StageWeights& weights, absl::Span<const LayerSpec> specs,
                                                       int thread, int threads);

// Writes a zero to every page of the thread's shares, from that thread, before anything is loaded. Counts in
// `bytes_touched`: taking hundreds of gigabytes takes a while.
void TouchShares(absl::Span<const LayerSpec> specs, int thread, int threads, StageWeights* weights,
                 std::atomic<uint64_t>* bytes_touched);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_PANEL_SHARES_H_
