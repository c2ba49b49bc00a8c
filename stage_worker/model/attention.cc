#include "stage_worker/model/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

namespace stagecoach {
namespace {

// The parts of a state of `columns` columns: maxima, sums, weighted values.
AttentionState StateAt(float* memory, int64_t columns) {
  return {.max = memory, .sum = memory + columns, .acc = memory + 2 * columns};
}

// Asks the memory for tiles that are read soon.
void AskFor(const uint8_t* const* tiles, int begin, int end, size_t tile_bytes) {
  constexpr size_t kLineBytes = 64;
  for (int t = begin; t < end; ++t) {
    for (size_t at = 0; at < tile_bytes; at += kLineBytes) __builtin_prefetch(tiles[t] + at, 0, 2);
  }
}

// One thread in the attention of one layer.
class AttentionRun {
 public:
  AttentionRun(const StageLayer& layer, const StepContext& step, int threads, AttentionScratch* scratch)
      : layer_(layer.pool_layer),
        block_group_(static_cast<size_t>(layer.spec.block_group)),
        pool_(step.PoolOf(layer.spec)),
        step_(step),
        threads_(threads),
        scratch_(scratch),
        group_(layer.spec.attention.group()),
        head_dim_(layer.spec.attention.head_dim),
        tile_bytes_(KvTileBytes(pool_.shape().type, head_dim_)) {}

  void Run() {
    const AttentionWork* work = Take();
    if (work != nullptr) {
      AskFor(scratch_->k_tiles, 0, FindTiles(*work, work->begin_granule, scratch_->k_tiles, nullptr), tile_bytes_);
    }
    for (; work != nullptr; work = next_) {
      GatherQueries(*work);
      work->cut < 0 ? RunWalk(*work) : RunPiece(*work);
    }
  }

 private:
  // From the end, where the longest walks of a prefill chunk are; who takes what does not change a result. Every thread
  // asks once when nothing is left; the last to do so sets the counter back for the next layer, behind the barrier.
  const AttentionWork* Take() {
    const int64_t count = static_cast<int64_t>(step_.plan.attention().size());
    const int64_t taken = step_.scratch.next_attention_work.fetch_add(1, std::memory_order_relaxed);
    if (taken == count + threads_ - 1) step_.scratch.next_attention_work.store(0, std::memory_order_relaxed);
    return taken < count ? &step_.plan.attention()[static_cast<size_t>(count - 1 - taken)] : nullptr;
  }

  // Positions of a granule that the last row of the work sees.
  int64_t Positions(const AttentionWork& work, int64_t granule) const {
    const int64_t end = step_.plan.rows()[static_cast<size_t>(work.first_row)].position + work.rows;
    return std::min<int64_t>(kAttentionGranule, end - granule * kAttentionGranule);
  }

  // Where the tiles of a granule lie; K's alone where v_tiles is nullptr. Returns how many.
  int FindTiles(const AttentionWork& work, int64_t granule, const uint8_t** k_tiles, const uint8_t** v_tiles) const {
    const std::vector<BlockId>& blocks = step_.plan.rows()[static_cast<size_t>(work.first_row)].tables[block_group_];
    const int32_t block_tiles = pool_.shape().block_tokens / kTilePositions;
    const int64_t first_tile = granule * (kAttentionGranule / kTilePositions);
    const int count = static_cast<int>((Positions(work, granule) + kTilePositions - 1) / kTilePositions);
    int64_t block = first_tile / block_tiles;
    int32_t tile = static_cast<int32_t>(first_tile % block_tiles);
    for (int t = 0; t < count; ++t) {
      k_tiles[t] = pool_.KTile(layer_, blocks[block], work.kv_head, tile);
      if (v_tiles != nullptr) v_tiles[t] = pool_.VTile(layer_, blocks[block], work.kv_head, tile);
      if (++tile == block_tiles) {
        tile = 0;
        ++block;
      }
    }
    return count;
  }

  // Columns are (row, query head of the group), scaled queries side by side.
  void GatherQueries(const AttentionWork& work) {
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)));
    float* out = scratch_->q.as<float>();
    for (int32_t row = 0; row < work.rows; ++row) {
      const float* q = step_.scratch.q.as<float>() + (work.first_row + row) * step_.scratch.q_stride +
                       work.kv_head * group_ * head_dim_;
      for (int64_t i = 0; i < group_ * head_dim_; ++i) *out++ = q[i] * scale;
    }
  }

  void StartSoftmax(int64_t columns, AttentionState state) const {
    std::fill_n(state.max, columns, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum, columns, 0.0f);
    std::fill_n(state.acc, columns * head_dim_, 0.0f);
  }

  void ScatterResults(const AttentionWork& work, AttentionState state) const {
    for (int32_t row = 0; row < work.rows; ++row) {
      float* out = step_.scratch.attended.as<float>() + (work.first_row + row) * step_.scratch.q_stride +
                   work.kv_head * group_ * head_dim_;
      for (int64_t head = 0; head < group_; ++head) {
        const int64_t column = row * group_ + head;
        const float* acc = state.acc + column * head_dim_;
        for (int64_t d = 0; d < head_dim_; ++d) out[head * head_dim_ + d] = acc[d] / state.sum[column];
      }
    }
  }

  // Folds one granule into the state, for the queries in scratch. Granules lie at fixed absolute positions, so that a
  // row's sum is the same in any chunk. With the last granule the next work is taken, so that its K can be asked for:
  // by the kernel as far as it reads V, the rest here.
  void AttendGranule(const AttentionWork& work, int64_t granule, AttentionState state) {
    const int64_t columns = work.rows * group_;
    const int64_t start = granule * kAttentionGranule;
    AttentionSpan span;
    span.type = pool_.shape().type;
    span.head_dim = static_cast<int>(head_dim_);
    span.value_dim = span.head_dim;
    span.positions = static_cast<int>(Positions(work, granule));
    span.k_tiles = scratch_->k_tiles;
    span.v_tiles = scratch_->v_tiles;
    const int tiles = FindTiles(work, granule, scratch_->k_tiles, scratch_->v_tiles);
    const bool last = granule + 1 == work.end_granule;
    if (last) next_ = Take();
    int next_tiles = 0;
    if (!last || next_ != nullptr) {
      next_tiles =
          FindTiles(last ? *next_ : work, last ? next_->begin_granule : granule + 1, scratch_->next_k_tiles, nullptr);
      for (int t = next_tiles; t < tiles; ++t) scratch_->next_k_tiles[t] = scratch_->next_k_tiles[0];
      span.next_k_tiles = scratch_->next_k_tiles;
    }
    const int64_t first_position = step_.plan.rows()[static_cast<size_t>(work.first_row)].position;
    int32_t* const limits = scratch_->limits.as<int32_t>();
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t visible = first_position + column / group_ + 1 - start;
      limits[column] = static_cast<int32_t>(std::clamp<int64_t>(visible, 0, span.positions));
    }
    step_.kernels.attend(span, scratch_->q.as<float>(), head_dim_, nullptr, limits, static_cast<int>(columns), state);
    AskFor(scratch_->next_k_tiles, tiles, next_tiles, tile_bytes_);
  }

  void RunWalk(const AttentionWork& work) {
    const int64_t columns = work.rows * group_;
    const AttentionState state = StateAt(scratch_->state.as<float>(), columns);
    StartSoftmax(columns, state);
    for (int64_t granule = 0; granule < work.end_granule; ++granule) AttendGranule(work, granule, state);
    ScatterResults(work, state);
  }

  // A piece of a cut walk. Merging the partial states in ascending order gives the bits of the whole walk: see
  // Kernels::merge_attention.
  void RunPiece(const AttentionWork& work) {
    const AttentionCut& cut = step_.plan.cuts()[static_cast<size_t>(work.cut)];
    const int64_t partial_floats = cut.columns * (2 + head_dim_);
    float* const partials = step_.scratch.partials.states.as<float>() + cut.first_column * (2 + head_dim_);
    for (int64_t granule = work.begin_granule; granule < work.end_granule; ++granule) {
      const int64_t partial = std::max<int64_t>(0, granule - cut.folded + 1);
      const AttentionState state = StateAt(partials + partial * partial_floats, cut.columns);
      if (partial > 0 || granule == 0) StartSoftmax(cut.columns, state);
      AttendGranule(work, granule, state);
    }
    std::atomic<int32_t>& finished = step_.scratch.partials.finished[static_cast<size_t>(work.cut)];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < cut.pieces) return;
    finished.store(0, std::memory_order_relaxed);  // for the next layer, behind the barrier
    const AttentionState state = StateAt(partials, cut.columns);
    for (int64_t partial = 1; partial < cut.partials; ++partial) {
      step_.kernels.merge_attention(StateAt(partials + partial * partial_floats, cut.columns), cut.columns,
                                    static_cast<int>(head_dim_), state);
    }
    ScatterResults(work, state);
  }

  const int64_t layer_;  // within the pool
  const size_t block_group_;
  const KvPool& pool_;
  const StepContext& step_;
  const int threads_;
  AttentionScratch* const scratch_;
  const int64_t group_, head_dim_;
  const size_t tile_bytes_;
  const AttentionWork* next_ = nullptr;  // of this thread, once the last granule of the current one has begun
};

}  // namespace

void Attend(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  AttentionRun(layer, step, worker.threads(), &step.scratch.attention[static_cast<size_t>(worker.thread)]).Run();
}

}  // namespace stagecoach
