#include "stage_worker/model/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

namespace stagecoach {
namespace {

// A square of elements to its transpose, in vectors of 16 bytes, which every machine of ours has.
template <typename T>
class Square {
 public:
  static constexpr size_t kSize = 16 / sizeof(T);

  static void Transpose(const uint8_t* in, size_t in_stride, uint8_t* out, size_t out_stride) {
    Row a[kSize], b[kSize];
    for (size_t i = 0; i < kSize; ++i) std::memcpy(&a[i], in + i * in_stride, sizeof(Row));
    // Interleaves the rows of both halves, element by element.
    for (size_t done = 1; done < kSize; done *= 2) {
      for (size_t i = 0; i < kSize / 2; ++i) {
        b[2 * i] = Zip<0>(a[i], a[i + kSize / 2], std::make_index_sequence<kSize>());
        b[2 * i + 1] = Zip<kSize / 2>(a[i], a[i + kSize / 2], std::make_index_sequence<kSize>());
      }
      for (size_t i = 0; i < kSize; ++i) a[i] = b[i];
    }
    for (size_t i = 0; i < kSize; ++i) std::memcpy(out + i * out_stride, &a[i], sizeof(Row));
  }

 private:
  typedef T Row __attribute__((vector_size(16)));

  // a[first], b[first], a[first + 1], ...
  template <size_t kFirst, size_t... kAt>
  static Row Zip(Row a, Row b, std::index_sequence<kAt...>) {
    return __builtin_shufflevector(a, b, (kFirst + kAt / 2 + kAt % 2 * kSize)...);
  }
};

// [dims][16 positions] elements to [16 positions][dims].
template <typename T>
void Transpose(const uint8_t* in, int64_t dims, uint8_t* out) {
  constexpr int64_t kSize = Square<T>::kSize;
  constexpr size_t kInStride = kTilePositions * sizeof(T);
  static_assert(kTilePositions % kSize == 0);
  const size_t out_stride = static_cast<size_t>(dims) * sizeof(T);
  const auto in_at = [&](int64_t d, int64_t lane) {
    return in + static_cast<size_t>(d * kTilePositions + lane) * sizeof(T);
  };
  const auto out_at = [&](int64_t d, int64_t lane) { return out + static_cast<size_t>(lane * dims + d) * sizeof(T); };
  int64_t d = 0;
  for (; d + kSize <= dims; d += kSize) {
    for (int64_t lane = 0; lane < kTilePositions; lane += kSize) {
      Square<T>::Transpose(in_at(d, lane), kInStride, out_at(d, lane), out_stride);
    }
  }
  for (; d < dims; ++d) {
    for (int64_t lane = 0; lane < kTilePositions; ++lane) std::memcpy(out_at(d, lane), in_at(d, lane), sizeof(T));
  }
}

}  // namespace

void LayOutValues(KvType type, const uint8_t* k_tile, int64_t key_dim, int64_t value_dim, uint8_t* v_tile) {
  switch (type) {
    case KvType::kF32: return Transpose<uint32_t>(k_tile, value_dim, v_tile);
    case KvType::kF16:
    case KvType::kBF16: return Transpose<uint16_t>(k_tile, value_dim, v_tile);
    case KvType::kQ8_0: {
      const auto scales_bytes = [](int64_t dims) {
        return static_cast<size_t>(dims / kKvGroup) * kTilePositions * sizeof(float);
      };
      std::memcpy(v_tile, k_tile, scales_bytes(value_dim));
      return Transpose<uint8_t>(k_tile + scales_bytes(key_dim), value_dim, v_tile + scales_bytes(value_dim));
    }
  }
}

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
  AttentionRun(const StageLayer& layer, const StepContext& step, const Worker& worker)
      : spec_(layer.spec.attention),
        sinks_(layer.weights.sinks),
        layer_(layer.pool_layer),
        block_group_(static_cast<size_t>(layer.spec.block_group)),
        pool_(step.PoolOf(layer.spec)),
        step_(step),
        walks_(step.plan.walks(layer.walks)),
        worker_(worker),
        untaken_(worker.StartWork(static_cast<int64_t>(walks_.work().size()), {.most = 1})),
        scratch_(&step.scratch.attention[static_cast<size_t>(worker.thread)]),
        group_(walks_.sizes().group),
        key_dim_(walks_.sizes().key_dim),
        value_dim_(walks_.sizes().value_dim),
        window_(walks_.sizes().window),
        tile_bytes_(KvTileBytes(pool_.shape().type, key_dim_)),
        value_tile_bytes_(KvTileBytes(pool_.shape().type, value_dim_)) {}

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
  // From the end, where a prefill chunk's longest walks are; the order changes no result.
  const AttentionWork* Take() {
    const WorkRun run = untaken_.Take();
    return run.empty() ? nullptr : &walks_.work()[walks_.work().size() - static_cast<size_t>(run.items.end)];
  }

  int64_t FirstPosition(const AttentionWork& work) const {
    return step_.plan.rows()[static_cast<size_t>(work.first_row)].position;
  }

  // Positions of a granule up to the last that the last row of the work sees.
  int64_t Positions(const AttentionWork& work, int64_t granule) const {
    return std::min<int64_t>(kAttentionGranule, FirstPosition(work) + work.rows - granule * kAttentionGranule);
  }

  // The first position of a granule that a row at `position` sees, if it sees any.
  int64_t Begin(int64_t position, int64_t granule) const {
    return window_ == 0 ? 0 : std::max<int64_t>(0, position + 1 - window_ - granule * kAttentionGranule);
  }

  // Finds the tiles of a granule; only K's if v_tiles is nullptr. Tiles that no row of the work sees, whose blocks may
  // be others' by now, are replaced by the first one that is seen. Returns their number.
  int FindTiles(const AttentionWork& work, int64_t granule, const uint8_t** k_tiles, const uint8_t** v_tiles) const {
    const std::vector<BlockId>& blocks = step_.plan.rows()[static_cast<size_t>(work.first_row)].tables[block_group_];
    const int32_t block_tiles = pool_.shape().block_tokens / kTilePositions;
    const int count = static_cast<int>((Positions(work, granule) + kTilePositions - 1) / kTilePositions);
    const int first = static_cast<int>(Begin(FirstPosition(work), granule) / kTilePositions);
    const int64_t kv_head = spec_.latent() ? 0 : work.head_group;
    const int64_t first_tile = granule * (kAttentionGranule / kTilePositions) + first;
    int64_t block = first_tile / block_tiles;
    int32_t tile = static_cast<int32_t>(first_tile % block_tiles);
    for (int t = first; t < count; ++t) {
      k_tiles[t] = pool_.KTile(layer_, blocks[block], kv_head, tile);
      if (v_tiles != nullptr) v_tiles[t] = ValueTile(blocks[block], kv_head, tile, t, k_tiles[t]);
      if (++tile == block_tiles) {
        tile = 0;
        ++block;
      }
    }
    std::fill_n(k_tiles, first, k_tiles[first]);
    if (v_tiles != nullptr) std::fill_n(v_tiles, first, v_tiles[first]);
    return count;
  }

  // The values of tile t of a granule. Latent attention lays them out, for all columns of the walk.
  const uint8_t* ValueTile(BlockId block, int64_t kv_head, int32_t tile, int t, const uint8_t* k_tile) const {
    if (!spec_.latent()) return pool_.VTile(layer_, block, kv_head, tile);
    uint8_t* const values = scratch_->values.data() + static_cast<size_t>(t) * value_tile_bytes_;
    LayOutValues(pool_.shape().type, k_tile, key_dim_, value_dim_, values);
    return values;
  }

  // Columns are (row, query head of the group), scaled queries side by side.
  void GatherQueries(const AttentionWork& work) {
    const float scale = static_cast<float>(spec_.score_scale);
    float* out = scratch_->q.as<float>();
    for (int32_t row = 0; row < work.rows; ++row) {
      const float* q = step_.scratch.q.as<float>() + (work.first_row + row) * step_.scratch.q_stride +
                       work.head_group * group_ * key_dim_;
      for (int64_t i = 0; i < group_ * key_dim_; ++i) *out++ = q[i] * scale;
    }
  }

  void StartSoftmax(int64_t columns, AttentionState state) const {
    std::fill_n(state.max, columns, -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum, columns, 0.0f);
    std::fill_n(state.acc, columns * value_dim_, 0.0f);
  }

  // Merges a granule with the maximum `sink`, the sum 1 and no values, as Kernels::merge_attention would; after all
  // granules of the walk.
  void JoinSink(float sink, int64_t column, AttentionState state) const {
    const float old_max = state.max[column];
    const float max = old_max > sink ? old_max : sink;
    const float factor = FixedExp(old_max - max);
    state.sum[column] = std::fma(state.sum[column], factor, FixedExp(sink - max));
    state.max[column] = max;
    float* const acc = state.acc + column * value_dim_;
    for (int64_t d = 0; d < value_dim_; ++d) acc[d] *= factor;
  }

  void ScatterResults(const AttentionWork& work, AttentionState state) const {
    for (int32_t row = 0; row < work.rows; ++row) {
      float* out = step_.scratch.attended.as<float>() + (work.first_row + row) * step_.scratch.attended_stride +
                   work.head_group * group_ * value_dim_;
      for (int64_t head = 0; head < group_; ++head) {
        const int64_t column = row * group_ + head;
        if (spec_.sinks) JoinSink(sinks_[static_cast<size_t>(work.head_group * group_ + head)], column, state);
        const float* acc = state.acc + column * value_dim_;
        for (int64_t d = 0; d < value_dim_; ++d) out[head * value_dim_ + d] = acc[d] / state.sum[column];
      }
      if (!spec_.gated) continue;
      const float* const gates = step_.scratch.gates.as<float>() + (work.first_row + row) * step_.scratch.gate_stride;
      step_.kernels.times_sigmoid(gates + work.head_group * group_ * value_dim_, group_ * value_dim_, out);
    }
  }

  // Folds one granule into the state, for the queries in scratch. Granules lie at fixed absolute positions, so a row's
  // sum is the same in any chunk. With the last granule the next work is taken and its K prefetched: by the kernel as
  // far as it reads V, the rest here.
  void AttendGranule(const AttentionWork& work, int64_t granule, AttentionState state) {
    const int64_t columns = work.rows * group_;
    AttentionSpan span;
    span.type = pool_.shape().type;
    span.head_dim = static_cast<int>(key_dim_);
    span.value_dim = static_cast<int>(value_dim_);
    span.score_cap = static_cast<float>(spec_.score_cap);
    span.positions = static_cast<int>(Positions(work, granule));
    span.k_tiles = scratch_->k_tiles;
    span.v_tiles = scratch_->v_tiles;
    const int tiles = FindTiles(work, granule, scratch_->k_tiles, scratch_->v_tiles);
    const int64_t unseen = Begin(FirstPosition(work), granule) / kTilePositions;
    worker_.Reads(static_cast<size_t>(tiles - unseen) * (tile_bytes_ + (spec_.latent() ? 0 : value_tile_bytes_)));
    const bool last = granule + 1 == work.end_granule;
    if (last) next_ = Take();
    int next_tiles = 0;
    if (!last || next_ != nullptr) {
      next_tiles =
          FindTiles(last ? *next_ : work, last ? next_->begin_granule : granule + 1, scratch_->next_k_tiles, nullptr);
      for (int t = next_tiles; t < tiles; ++t) scratch_->next_k_tiles[t] = scratch_->next_k_tiles[0];
      span.next_k_tiles = scratch_->next_k_tiles;
    }
    SetLimits(work, granule, span.positions);
    step_.kernels.attend(span, scratch_->q.as<float>(), key_dim_,
                         window_ > 0 ? scratch_->begins.as<int32_t>() : nullptr, scratch_->limits.as<int32_t>(),
                         static_cast<int>(columns), state);
    AskFor(scratch_->next_k_tiles, tiles, next_tiles, tile_bytes_);
  }

  // What each column sees of the first `positions` of a granule.
  void SetLimits(const AttentionWork& work, int64_t granule, int64_t positions) {
    int32_t* limit = scratch_->limits.as<int32_t>();
    int32_t* begin = scratch_->begins.as<int32_t>();
    for (int32_t row = 0; row < work.rows; ++row) {
      const int64_t position = FirstPosition(work) + row;
      const int64_t end = std::clamp<int64_t>(position + 1 - granule * kAttentionGranule, 0, positions);
      limit = std::fill_n(limit, group_, static_cast<int32_t>(end));
      if (window_ == 0) continue;
      begin = std::fill_n(begin, group_, static_cast<int32_t>(std::min(Begin(position, granule), end)));
    }
  }

  void RunWalk(const AttentionWork& work) {
    const int64_t columns = work.rows * group_;
    const AttentionState state = StateAt(scratch_->state.as<float>(), columns);
    StartSoftmax(columns, state);
    for (int64_t granule = work.begin_granule; granule < work.end_granule; ++granule)
      AttendGranule(work, granule, state);
    ScatterResults(work, state);
  }

  // A piece of a cut walk. Merging the partial states in ascending order gives the bits of the whole walk: see
  // Kernels::merge_attention.
  void RunPiece(const AttentionWork& work) {
    const AttentionCut& cut = walks_.cuts()[static_cast<size_t>(work.cut)];
    const int64_t partial_floats = cut.columns * (2 + value_dim_);
    float* const partials = step_.scratch.partials.states.as<float>() + cut.first_column * (2 + value_dim_);
    for (int64_t granule = work.begin_granule; granule < work.end_granule; ++granule) {
      const int64_t partial = std::max<int64_t>(0, granule - cut.folded_end + 1);
      const AttentionState state = StateAt(partials + partial * partial_floats, cut.columns);
      if (partial > 0 || granule == work.begin_granule) StartSoftmax(cut.columns, state);
      AttendGranule(work, granule, state);
    }
    std::atomic<int32_t>& finished = step_.scratch.partials.finished[static_cast<size_t>(work.cut)];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < cut.pieces) return;
    finished.store(0, std::memory_order_relaxed);  // for the next layer, behind the barrier
    const AttentionState state = StateAt(partials, cut.columns);
    for (int64_t partial = 1; partial < cut.partials; ++partial) {
      step_.kernels.merge_attention(StateAt(partials + partial * partial_floats, cut.columns), cut.columns,
                                    static_cast<int>(value_dim_), state);
    }
    ScatterResults(work, state);
  }

  const AttentionSpec& spec_;
  const std::vector<float>& sinks_;  // [Nq], or empty
  const int64_t layer_;              // within the pool
  const size_t block_group_;
  const KvPool& pool_;
  const StepContext& step_;
  const WalkPlan& walks_;
  const Worker& worker_;
  SharedWork::Taker untaken_;  // of walks_.work()
  AttentionScratch* const scratch_;
  const int64_t group_, key_dim_, value_dim_, window_;
  const size_t tile_bytes_, value_tile_bytes_;  // of K, of V
  const AttentionWork* next_ = nullptr;         // of this thread, once the last granule of the current one has begun
};

}  // namespace

void Attend(const StageLayer& layer, const StepContext& step, const Worker& worker) {
  worker.Enter(StepPart::kAttention);
  AttentionRun(layer, step, worker).Run();
}

}  // namespace stagecoach
