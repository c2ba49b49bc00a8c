#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ATTEND_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ATTEND_H_

// Attention over one granule, written with vector_math.h's vectors: scores of kLanes positions and values of kLanes
// dimensions a vector. Included by the attend_*.cc units behind the header of their instruction set.

#include <utility>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// What the unit defines.
constexpr int ScoreTiles(int columns);    // tiles of positions that Scores takes at once
constexpr int ValueVectors(int columns);  // vectors of dimensions that Values takes at once, at least 2

constexpr int kTileVectors = kTilePositions / kLanes;

template <KvType kType>
inline Floats LoadStored(const uint8_t* p) {  // of Q8_0, the codes
  if constexpr (kType == KvType::kF32) return Load(p);
  if constexpr (kType == KvType::kF16) return LoadHalves(p);
  if constexpr (kType == KvType::kBF16) return LoadBf16(p);
  return LoadCodes(p);
}

// The first `count` elements of a vector; the memory of the others is not touched.
template <KvType kType>
inline Floats LoadFirst(const uint8_t* p, int count) {
  uint8_t bytes[kLanes * 4] = {};
  std::memcpy(bytes, p, count * kKvBytes<kType>);
  return LoadStored<kType>(bytes);
}

inline void StoreFirstFloats(float* p, int count, Floats x) {
  float all[kLanes];
  Store(all, x);
  std::memcpy(p, all, count * sizeof(float));
}

// What a column does not see of the first and the last tile of its scores becomes -inf: those places may hold anything.
inline void HideUnseen(float* p, int begin, int limit) {
  for (int j = begin / kTilePositions * kTilePositions; j < begin; ++j) p[j] = -__builtin_inff();
  for (int j = limit; j < (limit + kTilePositions - 1) / kTilePositions * kTilePositions; ++j) p[j] = -__builtin_inff();
}

// Scales of Q8_0: those of vector v of a tile's positions for a group of dimensions.
inline Floats LoadScales(const uint8_t* tile, int64_t group, int v) {
  return Load(tile + group * kKvScaleBytes + v * kLanes * 4);
}

// Vectors of stored elements in a line of the cache.
template <KvType kType>
inline constexpr int kLineVectors = 64 / (kLanes * kKvBytes<kType>);

// Asks for a line that is read a phase later: V while K is read, and the next K while V is. A processor whose queue is
// full drops such a request, so lines are asked for again shortly before they are read, kSoonBytes of K and a tile of V
// ahead; not with one column of Q8_0, which gains nothing. (Loading lines so that the queue cannot overflow was
// slower.)
inline void Ahead(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }
inline void Soon(const uint8_t* p) { __builtin_prefetch(p, 0, 3); }
constexpr int kSoonBytes = 4096;
template <KvType kType, int C>
constexpr bool kAsksAgain = C > 1 || kType != KvType::kQ8_0;

// The elements of T tiles of K, of the T tiles that are read after them, and of V's tiles of the same positions.
template <int T>
struct KeyTiles {
  const uint8_t* codes[T];
  const uint8_t* next[T];
  const uint8_t* values[T];
};

// part += K^T q over the dimensions [begin, end), for T tiles of positions and C columns. V's tiles are asked for at
// the places that are read in K's.
template <KvType kType, int C, int T, bool kAhead>
inline void AddScores(const KeyTiles<T>& tiles, int head_dim, const float* const* q, int begin, int end,
                      Floats (*part)[kTileVectors * T]) {
  constexpr int kVectors = kTileVectors * T;
  constexpr int kDimBytes = kTilePositions * kKvBytes<kType>;
  constexpr int kLine = kAhead ? 64 / kDimBytes : 1;  // dimensions
  constexpr int kSoonDims = kSoonBytes / kDimBytes / T;
  for (int line = begin; line < end; line += kLine) {
    const bool later = line + kSoonDims >= head_dim;
    const uint8_t* const* const soon = later ? tiles.next : tiles.codes;
    const int at = later ? line + kSoonDims - head_dim : line + kSoonDims;
    for (int t = 0; kAhead && t < T; ++t) {
      Ahead(tiles.values[t] + line * kDimBytes);
      if constexpr (kAsksAgain<kType, C>) Soon(soon[t] + at * kDimBytes);
    }
    for (int d = line; d < line + kLine; ++d) {
      // The registers hold the sums and the fewer of the two factors.
      const auto load = [&](int t) {
        return LoadStored<kType>(tiles.codes[t / kTileVectors] +
                                 (d * kTilePositions + t % kTileVectors * kLanes) * kKvBytes<kType>);
      };
      if constexpr (C == 1) {
        const Floats query = Set(q[0][d]);
        for (int t = 0; t < kVectors; ++t) part[0][t] = Fma(load(t), query, part[0][t]);
      } else {
        Floats k[kVectors];
        for (int t = 0; t < kVectors; ++t) k[t] = load(t);
        for (int c = 0; c < C; ++c) {
          const Floats query = Set(q[c][d]);
          for (int t = 0; t < kVectors; ++t) part[c][t] = Fma(k[t], query, part[c][t]);
        }
      }
    }
  }
}

// Scores of T tiles of 16 positions for C columns.
template <KvType kType, int C, int T, bool kAhead>
void Scores(const AttendTile& tile, int first, float (*p)[kAttentionGranule]) {
  constexpr int kVectors = kTileVectors * T;
  const int head_dim = tile.span->head_dim;
  const uint8_t* const* const k_tiles = tile.span->k_tiles + first;
  const uint8_t* const* const v_tiles = tile.span->v_tiles + first;
  const int64_t k_offset = KvCodesOffset(kType, head_dim), v_offset = KvCodesOffset(kType, tile.span->value_dim);
  KeyTiles<T> tiles;
  for (int t = 0; t < T; ++t) {
    tiles.codes[t] = k_tiles[t] + k_offset;
    tiles.next[t] = (first + T + t) * kTilePositions < tile.limit ? k_tiles[T + t] + k_offset : tiles.codes[t];
    tiles.values[t] = v_tiles[t] + v_offset;
  }
  const float* q[C];
  for (int c = 0; c < C; ++c) q[c] = tile.q[c];
  // The scores themselves stay in memory: with scales, the registers hold a group's part.
  const int step = kType == KvType::kQ8_0 ? kKvGroup : head_dim;
  for (int begin = 0; begin < head_dim; begin += step) {
    Floats part[C][kVectors];
    for (int c = 0; c < C; ++c) {
      for (int t = 0; t < kVectors; ++t) part[c][t] = Set(0.0f);
    }
    AddScores<kType, C, T, kAhead>(tiles, head_dim, q, begin, begin + step, part);
    for (int t = 0; kAhead && kType == KvType::kQ8_0 && t < T; ++t) {
      Ahead(v_tiles[t] + begin / kKvGroup * kKvScaleBytes);
    }
    for (int t = 0; t < kVectors; ++t) {
      Floats scale;
      if constexpr (kType == KvType::kQ8_0) {
        scale = LoadScales(k_tiles[t / kTileVectors], begin / kKvGroup, t % kTileVectors);
      }
      for (int c = 0; c < C; ++c) {
        float* out = p[c] + first * kTilePositions + t * kLanes;
        if constexpr (kType == KvType::kQ8_0) {
          part[c][t] = Fma(scale, part[c][t], begin == 0 ? Set(0.0f) : Load(out));
        }
        Store(out, part[c][t]);
      }
    }
  }
}

// The largest score of a column from the tile of `begin` on, never a negative zero; -inf when every score is.
inline float Largest(float* p, int begin, int limit) {
  HideUnseen(p, begin, limit);
  Floats largest = Set(-__builtin_inff());
  for (int j = begin / kTilePositions * kTilePositions; j < limit; j += kLanes) largest = Max(largest, Load(p + j));
  return ReduceMax(largest) + 0.0f;
}

// Scores of a column to weights in place, from the tile of `begin` on. `lanes` become their sums by lane.
inline void Softmax(float* p, int begin, int limit, float max, float* lanes) {
  Floats sums[kTileVectors] = {};
  for (int j = begin / kTilePositions * kTilePositions; j < limit; j += kTilePositions) {
    for (int v = 0; v < kTileVectors; ++v) {
      float* place = p + j + v * kLanes;
      const Floats weights = Exp(Load(place) - Set(max));
      Store(place, weights);
      sums[v] = sums[v] + weights;
    }
  }
  for (int v = 0; v < kTileVectors; ++v) Store(lanes + v * kLanes, sums[v]);
}

// What the values of a tile need. A lane a column.
template <int C>
struct Weights {
  alignas(Floats) float p[C][kAttentionGranule];
  float old_factor[kLanes], new_factor[kLanes];
  int begins[C], limits[C];  // both 0 for a column whose scores are all -inf: its state does not change
  SharedPositions shared;
};

// Scores to weights, and the merge of the granule's maxima and sums: MergeGranule in lanes.
template <int C>
void SoftmaxAndMerge(const AttendTile& tile, Weights<C>* w) {
  float max[kLanes] = {}, sum[kLanes] = {}, old_max[kLanes] = {}, old_sum[kLanes] = {};
  // Loops of their own: columns overlap where one alone waits for its maximum and its sum.
  for (int c = 0; c < C; ++c) {
    max[c] = Largest(w->p[c], tile.begins[c], tile.limits[c]);
    w->begins[c] = max[c] == -__builtin_inff() ? 0 : tile.begins[c];
    w->limits[c] = max[c] == -__builtin_inff() ? 0 : tile.limits[c];
    old_max[c] = *tile.max[c];
    old_sum[c] = *tile.sum[c];
  }
  float lanes[C][kTilePositions];
  for (int c = 0; c < C; ++c) Softmax(w->p[c], w->begins[c], w->limits[c], max[c], lanes[c]);
  for (int c = 0; c < C; ++c) sum[c] = TreeSum(lanes[c]);
  const Floats merged = Max(Load(old_max), Load(max));
  const Floats old_factor = Exp(Load(old_max) - merged), new_factor = Exp(Load(max) - merged);
  Store(w->old_factor, old_factor);
  Store(w->new_factor, new_factor);
  Store(max, merged);
  Store(sum, Fma(Load(old_sum), old_factor, Load(sum) * new_factor));
  for (int c = 0; c < C; ++c) {
    if (w->limits[c] == 0) {
      w->old_factor[c] = 1.0f;
      w->new_factor[c] = -0.0f;  // acc becomes acc * 1 + 0 * -0, which is acc, even a negative zero
      continue;
    }
    *tile.max[c] = max[c];
    *tile.sum[c] = sum[c];
  }
  w->shared = SharedBy(w->begins, w->limits, C);
}

// Adds the positions [begin, end) to D vectors of dimensions from d on, of N columns. Vector i of column c weighs them
// with the row i / (D / G) * stride + c of weights. kPart: the only vector has `part` dimensions.
template <KvType kType, int N, int D, int G, bool kPart, bool kAhead>
inline void AddValues(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride, int begin,
                      int end, int64_t d, int part, Floats (*acc)[D]) {
  const int64_t row_bytes = span.value_dim * kKvBytes<kType>;
  const int64_t v_offset = KvCodesOffset(kType, span.value_dim), k_offset = KvCodesOffset(kType, span.head_dim);
  for (int j = begin; j < end;) {
    const int tile = j / kTilePositions, tile_end = (tile + 1) * kTilePositions, stop = tile_end < end ? tile_end : end;
    const int64_t offset = j % kTilePositions * row_bytes + d * kKvBytes<kType>;
    const uint8_t* row = span.v_tiles[tile] + v_offset + offset;
    const uint8_t* soon = span.v_tiles[tile_end < end ? tile + 1 : tile] + v_offset + offset;
    const uint8_t* next = span.next_k_tiles[tile] + k_offset + offset;
    for (; j < stop; ++j, row += row_bytes, soon += row_bytes, next += row_bytes) {
      for (int i = 0; kAhead && i < D; i += kLineVectors<kType>) {
        Ahead(next + i * kLanes * kKvBytes<kType>);
        if constexpr (kAsksAgain<kType, N>) Soon(soon + i * kLanes * kKvBytes<kType>);
      }
      const auto load = [&](int i) {
        return kPart ? LoadFirst<kType>(row, part) : LoadStored<kType>(row + i * kLanes * kKvBytes<kType>);
      };
      Floats v[D];
      for (int i = 0; N > 1 && i < D; ++i) v[i] = load(i);
      for (int c = 0; c < N; ++c) {
        for (int g = 0; g < G; ++g) {
          const Floats weight = Set(weights[g * stride + c][j]);
          for (int i = g * D / G; i < (g + 1) * D / G; ++i) acc[c][i] = Fma(weight, N > 1 ? v[i] : load(i), acc[c][i]);
        }
      }
    }
  }
}

// scaled[g * C + c] = the weights of column c times V's scales of the group of dimensions `group` + g; where only other
// columns see a position, anything.
template <int C, int G, bool kAhead>
inline void ScaleWeights(const AttendTile& tile, const Weights<C>& w, int64_t group,
                         float (*scaled)[kAttentionGranule]) {
  const AttentionSpan& span = *tile.span;
  const int end = (tile.limit + kTilePositions - 1) / kTilePositions;
  for (int t = tile.begin / kTilePositions; t < end; ++t) {
    for (int g = 0; g < G; ++g) {
      if (kAhead) Ahead(span.next_k_tiles[t] + (group + g) * kKvScaleBytes);
      for (int v = 0; v < kTileVectors; ++v) {
        const Floats scales = LoadScales(span.v_tiles[t], group + g, v);
        const int j = t * kTilePositions + v * kLanes;
        for (int c = 0; c < C; ++c) Store(scaled[g * C + c] + j, Load(w.p[c] + j) * scales);
      }
    }
  }
}

// Adds the positions [begin, end) of one column alone to `sums`. Out of line: few tiles have such positions.
template <KvType kType, int D, int G, bool kPart>
[[gnu::noinline]] void AddAlone(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride,
                                int begin, int end, int64_t d, int part, float* sums) {
  Floats acc[1][D];
  for (int i = 0; i < D; ++i) acc[0][i] = Load(sums + i * kLanes);
  AddValues<kType, 1, D, G, kPart, false>(span, weights, stride, begin, end, d, part, acc);
  for (int i = 0; i < D; ++i) Store(sums + i * kLanes, acc[0][i]);
}

// Adds to each column the positions that it sees of [begin, end), which not all columns see.
template <KvType kType, int C, int D, int G, bool kPart>
inline void AddUnshared(const AttentionSpan& span, const Weights<C>& w, const float (*weights)[kAttentionGranule],
                        int begin, int end, int64_t d, int part, Floats (*acc)[D]) {
  alignas(Floats) float sums[C][D * kLanes];
#pragma GCC unroll 8  // here and below: else the sums are in memory from the start
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) Store(sums[c] + i * kLanes, acc[c][i]);
  }
  for (int c = 0; c < C; ++c) {
    const int from = w.begins[c] > begin ? w.begins[c] : begin, to = w.limits[c] < end ? w.limits[c] : end;
    AddAlone<kType, D, G, kPart>(span, weights + c, C, from, to, d, part, sums[c]);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = Load(sums[c] + i * kLanes);
  }
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others are added column by column.
template <KvType kType, int C, int D, bool kPart, bool kAhead>
void Values(const AttendTile& tile, const Weights<C>& w, int64_t d, int part) {
  constexpr int kGroups = kType == KvType::kQ8_0 && D * kLanes > kKvGroup ? D * kLanes / kKvGroup : 1;
  const AttentionSpan& span = *tile.span;
  const SharedPositions shared = w.shared;
  const float(*weights)[kAttentionGranule] = w.p;
  alignas(Floats) float scaled[kType == KvType::kQ8_0 ? kGroups * C : 1][kAttentionGranule];
  if constexpr (kType == KvType::kQ8_0) {
    ScaleWeights<C, kGroups, kAhead>(tile, w, d / kKvGroup, scaled);
    weights = scaled;
  }
  Floats acc[C][D];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = Set(0.0f);
  }
  if (C > 1 && shared.begin > tile.begin) {
    AddUnshared<kType, C, D, kGroups, kPart>(span, w, weights, tile.begin, shared.begin, d, part, acc);
  }
  AddValues<kType, C, D, kGroups, kPart, kAhead>(span, weights, C, shared.begin, shared.end, d, part, acc);
  if (C > 1 && shared.end < tile.limit) {
    AddUnshared<kType, C, D, kGroups, kPart>(span, w, weights, shared.end, tile.limit, d, part, acc);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      // No negative zero, so that a granule gives the same bits when it is merged later.
      const Floats granule = (acc[c][i] + Set(0.0f)) * Set(w.new_factor[c]);
      const Floats old = kPart ? LoadFirstFloats(out, part) : Load(out);
      const Floats merged = Fma(old, Set(w.old_factor[c]), granule);
      kPart ? StoreFirstFloats(out, part, merged) : Store(out, merged);
    }
  }
}

// The scores that a tile's columns see to capped ones; also what lies beside them in a vector, which Softmax leaves
// out.
template <int C>
void CapScores(const AttendTile& tile, float (*scores)[kAttentionGranule]) {
  const Floats cap = Set(tile.span->score_cap);
  for (int c = 0; c < C; ++c) {
    for (int j = tile.begins[c] / kLanes * kLanes; j < tile.limits[c]; j += kLanes) {
      Store(scores[c] + j, SoftCap(Load(scores[c] + j), cap));
    }
  }
}

template <KvType kType, int C, bool kAhead>
void Tile(const AttendTile& tile) {
  constexpr int kScoreTiles = ScoreTiles(C), kValueVectors = ValueVectors(C);
  Weights<C> w;
  const int position_tiles = (tile.limit + kTilePositions - 1) / kTilePositions;
  int t = tile.begin / kTilePositions;
  for (; t + kScoreTiles <= position_tiles; t += kScoreTiles) Scores<kType, C, kScoreTiles, kAhead>(tile, t, w.p);
  for (; t < position_tiles; ++t) Scores<kType, C, 1, kAhead>(tile, t, w.p);
  if (tile.span->score_cap > 0.0f) CapScores<C>(tile, w.p);
  SoftmaxAndMerge<C>(tile, &w);
  const int value_dim = tile.span->value_dim;
  int d = 0;
  for (; d + kValueVectors * kLanes <= value_dim; d += kValueVectors * kLanes) {
    Values<kType, C, kValueVectors, false, kAhead>(tile, w, d, 0);
  }
  for (; d + 2 * kLanes <= value_dim; d += 2 * kLanes) Values<kType, C, 2, false, kAhead>(tile, w, d, 0);
  if constexpr (kType != KvType::kQ8_0) {
    for (; d + kLanes <= value_dim; d += kLanes) Values<kType, C, 1, false, kAhead>(tile, w, d, 0);
    if (d < value_dim) Values<kType, C, 1, true, kAhead>(tile, w, d, value_dim - d);
  }
}

// The tiles of 1 .. kColumns columns. kAhead: they prefetch.
template <KvType kType, bool kAhead, int... kBefore>
constexpr AttendTiles TilesOf(std::integer_sequence<int, kBefore...>) {
  constexpr int kColumns = sizeof...(kBefore);
  return {kColumns, {nullptr, Tile<kType, kBefore + 1, kAhead>...}, Tile<kType, kColumns, false>};
}

template <int kColumns, bool kAhead>
constexpr AttendTables TablesOf() {
  constexpr std::make_integer_sequence<int, kColumns> kBefore;
  return {TilesOf<KvType::kF32, kAhead>(kBefore), TilesOf<KvType::kF16, kAhead>(kBefore),
          TilesOf<KvType::kBF16, kAhead>(kBefore), TilesOf<KvType::kQ8_0, kAhead>(kBefore)};
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ATTEND_H_
