#include "stage_worker/model/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

// Where the tiles of a granule's first `positions` positions lie; K's alone where v_tiles is nullptr. Returns how many.
int FindTiles(const KvPool& pool, int64_t layer, int64_t kv_head, const BlockId* blocks, int64_t granule,
              int64_t positions, const uint8_t** k_tiles, const uint8_t** v_tiles) {
  const int32_t block_tiles = pool.shape().block_tokens / kTilePositions;
  const int64_t first_tile = granule * (kAttentionGranule / kTilePositions);
  const int count = static_cast<int>((positions + kTilePositions - 1) / kTilePositions);
  int64_t block = first_tile / block_tiles;
  int32_t tile = static_cast<int32_t>(first_tile % block_tiles);
  for (int t = 0; t < count; ++t) {
    k_tiles[t] = pool.KTile(layer, blocks[block], kv_head, tile);
    if (v_tiles != nullptr) v_tiles[t] = pool.VTile(layer, blocks[block], kv_head, tile);
    if (++tile == block_tiles) {
      tile = 0;
      ++block;
    }
  }
  return count;
}

// Columns are (row, query head of the group), scaled queries side by side.
void GatherQueries(const AttentionWork& work, int64_t group, const StepContext& step, AttentionScratch* scratch) {
  const int64_t head_dim = step.hyper.head_dim;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  float* out = scratch->q.as<float>();
  for (int32_t row = 0; row < work.rows; ++row) {
    const float* q =
        step.scratch.q.as<float>() + (work.first_row + row) * step.scratch.q_stride + work.kv_head * group * head_dim;
    for (int64_t i = 0; i < group * head_dim; ++i) *out++ = q[i] * scale;
  }
}

// The parts of a state of `columns` columns: maxima, sums, weighted values.
AttentionState StateAt(float* memory, int64_t columns) {
  return {.max = memory, .sum = memory + columns, .acc = memory + 2 * columns};
}

void StartSoftmax(int64_t columns, int64_t head_dim, AttentionState state) {
  std::fill_n(state.max, columns, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, columns, 0.0f);
  std::fill_n(state.acc, columns * head_dim, 0.0f);
}

void ScatterResults(const AttentionWork& work, int64_t group, const StepContext& step, AttentionState state) {
  const int64_t head_dim = step.hyper.head_dim;
  for (int32_t row = 0; row < work.rows; ++row) {
    float* out = step.scratch.attended.as<float>() + (work.first_row + row) * step.scratch.q_stride +
                 work.kv_head * group * head_dim;
    for (int64_t head = 0; head < group; ++head) {
      const int64_t column = row * group + head;
      const float* acc = state.acc + column * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) out[head * head_dim + d] = acc[d] / state.sum[column];
    }
  }
}

// Folds one granule into the state, for the queries in scratch. Granules lie at fixed absolute positions, so that a
// row's sum is the same in any chunk.
void AttendGranule(const AttentionWork& work, int64_t granule, int64_t layer, const StepContext& step,
                   AttentionScratch* scratch, AttentionState state) {
  const int64_t group = step.hyper.heads / step.hyper.kv_heads;
  const int64_t columns = work.rows * group;
  const StepRow& first = step.plan.rows()[static_cast<size_t>(work.first_row)];
  const int64_t start = granule * kAttentionGranule;
  const int64_t end = first.position + work.rows;  // positions that the last row sees
  AttentionSpan span;
  span.type = step.pool.shape().type;
  span.head_dim = static_cast<int>(step.hyper.head_dim);
  span.positions = static_cast<int>(std::min<int64_t>(kAttentionGranule, end - start));
  span.k_tiles = scratch->k_tiles;
  span.v_tiles = scratch->v_tiles;
  const int tiles = FindTiles(step.pool, layer, work.kv_head, first.blocks, granule, span.positions, scratch->k_tiles,
                              scratch->v_tiles);
  if (granule + 1 < work.end_granule) {
    const int64_t next_positions = std::min<int64_t>(kAttentionGranule, end - start - kAttentionGranule);
    int next = FindTiles(step.pool, layer, work.kv_head, first.blocks, granule + 1, next_positions,
                         scratch->next_k_tiles, nullptr);
    for (; next < tiles; ++next) scratch->next_k_tiles[next] = scratch->next_k_tiles[0];
    span.next_k_tiles = scratch->next_k_tiles;
  }
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t visible = first.position + column / group + 1 - start;
    scratch->limits[static_cast<size_t>(column)] =
        static_cast<int32_t>(std::clamp<int64_t>(visible, 0, span.positions));
  }
  step.kernels.attend(span, scratch->q.as<float>(), step.hyper.head_dim, scratch->limits.data(),
                      static_cast<int>(columns), state);
}

void RunWalk(const AttentionWork& work, int64_t layer, const StepContext& step, AttentionScratch* scratch) {
  const int64_t group = step.hyper.heads / step.hyper.kv_heads, columns = work.rows * group;
  const AttentionState state = StateAt(scratch->state.as<float>(), columns);
  StartSoftmax(columns, step.hyper.head_dim, state);
  for (int64_t granule = 0; granule < work.end_granule; ++granule) {
    AttendGranule(work, granule, layer, step, scratch, state);
  }
  ScatterResults(work, group, step, state);
}

// A piece of a cut walk. Merging the partial states in ascending order gives the bits of the whole walk: see
// Kernels::merge_attention.
void RunPiece(const AttentionWork& work, int64_t layer, const StepContext& step, AttentionScratch* scratch) {
  const AttentionCut& cut = step.plan.cuts()[static_cast<size_t>(work.cut)];
  const int64_t head_dim = step.hyper.head_dim, partial_floats = cut.columns * (2 + head_dim);
  float* const partials = step.scratch.partials.states.as<float>() + cut.first_column * (2 + head_dim);
  for (int64_t granule = work.begin_granule; granule < work.end_granule; ++granule) {
    const int64_t partial = std::max<int64_t>(0, granule - cut.folded + 1);
    const AttentionState state = StateAt(partials + partial * partial_floats, cut.columns);
    if (partial > 0 || granule == 0) StartSoftmax(cut.columns, head_dim, state);
    AttendGranule(work, granule, layer, step, scratch, state);
  }
  std::atomic<int32_t>& finished = step.scratch.partials.finished[static_cast<size_t>(work.cut)];
  if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < cut.pieces) return;
  finished.store(0, std::memory_order_relaxed);  // for the next layer, behind the barrier
  const AttentionState state = StateAt(partials, cut.columns);
  for (int64_t partial = 1; partial < cut.partials; ++partial) {
    step.kernels.merge_attention(StateAt(partials + partial * partial_floats, cut.columns), cut.columns,
                                 static_cast<int>(head_dim), state);
  }
  ScatterResults(work, step.hyper.heads / step.hyper.kv_heads, step, state);
}

}  // namespace

void Attend(int64_t layer, const StepContext& step, const Worker& worker) {
  AttentionScratch* scratch = &step.scratch.attention[static_cast<size_t>(worker.thread)];
  const std::vector<AttentionWork>& works = step.plan.attention();
  const int64_t count = static_cast<int64_t>(works.size());
  // From the end, where the longest walks of a prefill chunk are; who takes what does not change a result.
  for (int64_t taken; (taken = step.scratch.next_attention_work.fetch_add(1, std::memory_order_relaxed)) < count;) {
    const AttentionWork& work = works[static_cast<size_t>(count - 1 - taken)];
    GatherQueries(work, step.hyper.heads / step.hyper.kv_heads, step, scratch);
    (work.cut < 0 ? RunWalk : RunPiece)(work, layer, step, scratch);
  }
}

}  // namespace stagecoach
