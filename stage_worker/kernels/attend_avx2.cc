// Attention over one granule with AVX2: scores of 16 positions in two vectors, values of 8 dimensions a vector.

#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/avx2.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 8;

// 8 floats as F16 or BF16, rounded to nearest even.
__m128i ToKv8(KvType type, __m256 x) {
  if (type == KvType::kF16) return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// Up to 8 floats as `count` elements of the stored type.
void ToStored(KvType type, const float* x, int count, uint8_t* out) {
  float all[kLanes] = {};
  std::memcpy(all, x, count * sizeof(float));
  if (type == KvType::kF32) {
    std::memcpy(out, all, sizeof(all));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), ToKv8(type, _mm256_loadu_ps(all)));
  }
}

template <KvType kType>
inline constexpr int64_t kBytes = kType == KvType::kF32    ? 4
                                  : kType == KvType::kQ8_0 ? 1
                                                           : 2;

// Eight elements of the stored type as float; of Q8_0, the codes.
template <KvType kType>
inline __m256 Load8(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return LoadFloats(p);
  if constexpr (kType == KvType::kQ8_0) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  const __m128i bits = Load128(p);
  if constexpr (kType == KvType::kF16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// The first `count` of eight elements; the memory of the others is not touched.
template <KvType kType>
inline __m256 LoadPart(const uint8_t* p, int count) {
  uint8_t bytes[kLanes * 4] = {};
  std::memcpy(bytes, p, count * kBytes<kType>);
  return Load8<kType>(bytes);
}

// Scales of Q8_0: those of positions [8 half, 8 half + 8) for a group of dimensions.
inline __m256 LoadScales(const uint8_t* tile, int64_t group, int half) {
  return LoadFloats(tile + group * kKvScaleBytes + half * kLanes * 4);
}

// Vectors of stored elements in a line of the cache.
template <KvType kType>
inline constexpr int kLineVectors = 64 / (kLanes * kBytes<kType>);

// Asks for a line that is read a phase later: V while K is read, and the next K while V is.
inline void Ahead(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

// part += K^T q over the dimensions [begin, end), for T tiles of positions and C columns. V's tiles are asked for at
// the places that are read in K's.
template <KvType kType, int C, int T, bool kAhead>
inline void AddScores(const uint8_t* const* codes, const uint8_t* const* v_codes, const float* const* q, int begin,
                      int end, __m256 (*part)[2 * T]) {
  constexpr int kLine = kAhead ? kLineVectors<kType> / 2 : 1;  // dimensions
  for (int line = begin; line < end; line += kLine) {
    for (int t = 0; kAhead && t < T; ++t) Ahead(v_codes[t] + line * kTilePositions * kBytes<kType>);
    for (int d = line; d < line + kLine; ++d) {
      // The registers hold the sums and the fewer of the two factors.
      const auto load = [&](int t) {
        return Load8<kType>(codes[t / 2] + (d * kTilePositions + t % 2 * kLanes) * kBytes<kType>);
      };
      if constexpr (C == 1) {
        const __m256 query = _mm256_set1_ps(q[0][d]);
        for (int t = 0; t < 2 * T; ++t) part[0][t] = _mm256_fmadd_ps(load(t), query, part[0][t]);
      } else {
        __m256 k[2 * T];
        for (int t = 0; t < 2 * T; ++t) k[t] = load(t);
        for (int c = 0; c < C; ++c) {
          const __m256 query = _mm256_set1_ps(q[c][d]);
          for (int t = 0; t < 2 * T; ++t) part[c][t] = _mm256_fmadd_ps(k[t], query, part[c][t]);
        }
      }
    }
  }
}

// Scores of T tiles of 16 positions for C columns.
template <KvType kType, int C, int T, bool kAhead>
void Scores(const AttendTile& tile, int first, float (*p)[kAttentionGranule]) {
  const int head_dim = tile.span->head_dim;
  const uint8_t* k_tiles[T];
  const uint8_t* codes[T];
  const uint8_t* v_codes[T];
  for (int t = 0; t < T; ++t) {
    k_tiles[t] = tile.span->k_tiles[first + t];
    codes[t] = k_tiles[t] + KvCodesOffset(kType, head_dim);
    v_codes[t] = tile.span->v_tiles[first + t] + KvCodesOffset(kType, tile.span->value_dim);
  }
  const float* q[C];
  for (int c = 0; c < C; ++c) q[c] = tile.q[c];
  // The scores themselves stay in memory: with scales, the registers hold a group's part.
  const int step = kType == KvType::kQ8_0 ? kKvGroup : head_dim;
  for (int begin = 0; begin < head_dim; begin += step) {
    __m256 part[C][2 * T];
    for (int c = 0; c < C; ++c) {
      for (int t = 0; t < 2 * T; ++t) part[c][t] = _mm256_setzero_ps();
    }
    AddScores<kType, C, T, kAhead>(codes, v_codes, q, begin, begin + step, part);
    for (int t = 0; kAhead && kType == KvType::kQ8_0 && t < T; ++t) {
      Ahead(tile.span->v_tiles[first + t] + begin / kKvGroup * kKvScaleBytes);
    }
    for (int t = 0; t < 2 * T; ++t) {
      for (int c = 0; c < C; ++c) {
        float* out = p[c] + first * kTilePositions + t * kLanes;
        if constexpr (kType == KvType::kQ8_0) {
          const __m256 before = begin == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(out);
          part[c][t] = _mm256_fmadd_ps(LoadScales(k_tiles[t / 2], begin / kKvGroup, t % 2), part[c][t], before);
        }
        _mm256_storeu_ps(out, part[c][t]);
      }
    }
  }
}

// TreeSum of 16 lanes.
inline float Tree(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Scores of one column to weights in place, from the tile of `begin` on. What the column does not see of the first and
// the last tile becomes -inf first: those places may hold anything. Returns the maximum, never a negative zero, and the
// sum of the weights; -inf and nothing else when every score is -inf.
inline float Softmax(float* p, int begin, int limit, float* sum) {
  const int first = begin / kTilePositions * kTilePositions;
  const int end = (limit + kTilePositions - 1) / kTilePositions * kTilePositions;
  for (int j = first; j < begin; ++j) p[j] = -__builtin_inff();
  for (int j = limit; j < end; ++j) p[j] = -__builtin_inff();
  __m256 largest = _mm256_set1_ps(-__builtin_inff());
  for (int j = first; j < end; j += kLanes) largest = _mm256_max_ps(largest, _mm256_loadu_ps(p + j));
  const float max = ReduceMax(largest) + 0.0f;
  if (max == -__builtin_inff()) return max;
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int j = first; j < end; j += kTilePositions) {
    for (int half = 0; half < 2; ++half) {
      float* place = p + j + half * kLanes;
      const __m256 weights = Exp(_mm256_sub_ps(_mm256_loadu_ps(place), _mm256_set1_ps(max)));
      _mm256_storeu_ps(place, weights);
      lanes[half] = _mm256_add_ps(lanes[half], weights);
    }
  }
  *sum = Tree(lanes[0], lanes[1]);
  return max;
}

// What the values of a tile need.
template <int C>
struct Weights {
  alignas(32) float p[C][kAttentionGranule];
  float old_factor[kLanes], new_factor[kLanes];
  int begins[C], limits[C];  // both 0 for a column whose scores are all -inf: its state does not change
  SharedPositions shared;
};

// Scores to weights, and the merge of the granule's maxima and sums: MergeGranule, a lane a column.
template <int C>
void SoftmaxAndMerge(const AttendTile& tile, Weights<C>* w) {
  float max[kLanes] = {}, sum[kLanes] = {}, old_max[kLanes] = {}, old_sum[kLanes] = {};
  for (int c = 0; c < C; ++c) {
    max[c] = Softmax(w->p[c], tile.begins[c], tile.limits[c], &sum[c]);
    w->begins[c] = max[c] == -__builtin_inff() ? 0 : tile.begins[c];
    w->limits[c] = max[c] == -__builtin_inff() ? 0 : tile.limits[c];
    old_max[c] = *tile.max[c];
    old_sum[c] = *tile.sum[c];
  }
  const __m256 merged = _mm256_max_ps(_mm256_loadu_ps(old_max), _mm256_loadu_ps(max));
  const __m256 old_factor = Exp(_mm256_sub_ps(_mm256_loadu_ps(old_max), merged));
  const __m256 new_factor = Exp(_mm256_sub_ps(_mm256_loadu_ps(max), merged));
  _mm256_storeu_ps(w->old_factor, old_factor);
  _mm256_storeu_ps(w->new_factor, new_factor);
  _mm256_storeu_ps(max, merged);
  _mm256_storeu_ps(
      sum, _mm256_fmadd_ps(_mm256_loadu_ps(old_sum), old_factor, _mm256_mul_ps(_mm256_loadu_ps(sum), new_factor)));
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
// with the row i / (D / G) * stride + c of weights. part: how many dimensions the only vector has, 0 for all.
template <KvType kType, int N, int D, int G, bool kPart, bool kAhead>
inline void AddValues(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride, int begin,
                      int end, int64_t d, int part, __m256 (*acc)[D]) {
  for (int j = begin; j < end; ++j) {
    const uint32_t tile = static_cast<uint32_t>(j) / kTilePositions, lane = static_cast<uint32_t>(j) % kTilePositions;
    const int64_t offset = (lane * static_cast<int64_t>(span.value_dim) + d) * kBytes<kType>;
    const uint8_t* row = span.v_tiles[tile] + KvCodesOffset(kType, span.value_dim) + offset;
    const uint8_t* next = span.next_k_tiles[tile] + KvCodesOffset(kType, span.head_dim) + offset;
    for (int i = 0; kAhead && i < D; i += kLineVectors<kType>) Ahead(next + i * kLanes * kBytes<kType>);
    const auto load = [&](int i) {
      return kPart ? LoadPart<kType>(row, part) : Load8<kType>(row + i * kLanes * kBytes<kType>);
    };
    __m256 v[D];
    for (int i = 0; N > 1 && i < D; ++i) v[i] = load(i);
    for (int c = 0; c < N; ++c) {
      for (int g = 0; g < G; ++g) {
        const __m256 weight = _mm256_set1_ps(weights[g * stride + c][j]);
        for (int i = g * D / G; i < (g + 1) * D / G; ++i) {
          acc[c][i] = _mm256_fmadd_ps(weight, N > 1 ? v[i] : load(i), acc[c][i]);
        }
      }
    }
  }
}

// scaled[g * C + c] = the weights of column c times V's scales of the group of dimensions `group` + g.
template <int C, int G, bool kAhead>
inline void ScaleWeights(const AttentionSpan& span, const Weights<C>& w, int64_t group,
                         float (*scaled)[kAttentionGranule]) {
  for (int c = 0; c < C; ++c) {
    const uint32_t end = (static_cast<uint32_t>(w.limits[c]) + kLanes - 1) / kLanes;
    for (uint32_t t = static_cast<uint32_t>(w.begins[c]) / kLanes; t < end; ++t) {
      const __m256 weights = _mm256_loadu_ps(w.p[c] + t * kLanes);
      for (int g = 0; g < G; ++g) {
        if (kAhead && c == 0) Ahead(span.next_k_tiles[t / 2] + (group + g) * kKvScaleBytes);
        _mm256_storeu_ps(scaled[g * C + c] + t * kLanes,
                         _mm256_mul_ps(weights, LoadScales(span.v_tiles[t / 2], group + g, static_cast<int>(t % 2))));
      }
    }
  }
}

// Merges a vector of a granule's weighted values into the state. No negative zero, so that a granule gives the same
// bits when it is merged later.
inline __m256 Merge(__m256 old, __m256 granule, float old_factor, float new_factor) {
  granule = _mm256_mul_ps(_mm256_add_ps(granule, _mm256_setzero_ps()), _mm256_set1_ps(new_factor));
  return _mm256_fmadd_ps(old, _mm256_set1_ps(old_factor), granule);
}

// The sums of the positions [begin, end) of one column alone. Out of line: few tiles of a window have such positions.
template <KvType kType, int D, int G, bool kPart>
[[gnu::noinline]] void AddAlone(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride,
                                int begin, int end, int64_t d, int part, float* sums) {
  __m256 acc[1][D];
  for (int i = 0; i < D; ++i) acc[0][i] = _mm256_setzero_ps();
  AddValues<kType, 1, D, G, kPart, false>(span, weights, stride, begin, end, d, part, acc);
  for (int i = 0; i < D; ++i) _mm256_storeu_ps(sums + i * kLanes, acc[0][i]);
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others are added column by column.
template <KvType kType, int C, int D, bool kPart, bool kAhead>
void Values(const AttendTile& tile, const Weights<C>& w, int64_t d, int part) {
  constexpr int kGroups = kType == KvType::kQ8_0 && D * kLanes > kKvGroup ? D * kLanes / kKvGroup : 1;
  const AttentionSpan& span = *tile.span;
  const SharedPositions shared = w.shared;
  const float(*weights)[kAttentionGranule] = w.p;
  alignas(32) float scaled[kType == KvType::kQ8_0 ? kGroups * C : 1][kAttentionGranule];
  if constexpr (kType == KvType::kQ8_0) {
    ScaleWeights<C, kGroups, kAhead>(span, w, d / kKvGroup, scaled);
    weights = scaled;
  }
  __m256 acc[C][D];
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = _mm256_setzero_ps();
  }
  if (shared.begin > tile.begin) {
    alignas(32) float sums[C][D * kLanes];
    for (int c = 0; c < C; ++c) {
      const int end = w.limits[c] < shared.begin ? w.limits[c] : shared.begin;
      AddAlone<kType, D, kGroups, kPart>(span, weights + c, C, w.begins[c], end, d, part, sums[c]);
    }
    // A loop of its own: one with calls in it is not unrolled, and the sums would begin in memory.
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < D; ++i) acc[c][i] = _mm256_load_ps(sums[c] + i * kLanes);
    }
  }
  AddValues<kType, C, D, kGroups, kPart, kAhead>(span, weights, C, shared.begin, shared.end, d, part, acc);
  for (int c = 0; c < C; ++c) {
    AddValues<kType, 1, D, kGroups, kPart, kAhead>(span, weights + c, C, shared.end, w.limits[c], d, part, acc + c);
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      if constexpr (kPart) {
        float eight[kLanes] = {};
        std::memcpy(eight, out, part * sizeof(float));
        _mm256_storeu_ps(eight, Merge(_mm256_loadu_ps(eight), acc[c][i], w.old_factor[c], w.new_factor[c]));
        std::memcpy(out, eight, part * sizeof(float));
      } else {
        _mm256_storeu_ps(out, Merge(_mm256_loadu_ps(out), acc[c][i], w.old_factor[c], w.new_factor[c]));
      }
    }
  }
}

// The scores that a tile's columns see to capped ones; also what lies beside them in a vector, which Softmax leaves
// out.
template <int C>
void CapScores(const AttendTile& tile, float (*scores)[kAttentionGranule]) {
  const __m256 cap = _mm256_set1_ps(tile.span->score_cap);
  for (int c = 0; c < C; ++c) {
    for (int j = tile.begins[c] / kLanes * kLanes; j < tile.limits[c]; j += kLanes) {
      _mm256_storeu_ps(scores[c] + j, SoftCap(_mm256_loadu_ps(scores[c] + j), cap));
    }
  }
}

template <KvType kType, int C, bool kAhead = true>
void Tile(const AttendTile& tile) {
  // Tiles of positions, and vectors of dimensions, at once: 8 to 12 independent chains.
  constexpr int kScoreTiles = C == 1 ? 4 : C == 2 ? 2 : 1;
  constexpr int kValueVectors = C == 1 ? 8 : C == 2 ? 4 : 2;
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

template <KvType kType>
constexpr AttendTiles kTiles = {
    6,
    {nullptr, Tile<kType, 1>, Tile<kType, 2>, Tile<kType, 3>, Tile<kType, 4>, Tile<kType, 5>, Tile<kType, 6>},
    Tile<kType, 6, false>};

}  // namespace

void StoreKAvx2(KvType type, const float* k, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) return StoreKScalar(type, k, head_dim, lane, tile);
  const int64_t size = type == KvType::kF32 ? 4 : 2;
  for (int d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint8_t column[kLanes * 4];
    ToStored(type, k + d, count, column);
    for (int i = 0; i < count; ++i)
      std::memcpy(tile + ((d + i) * kTilePositions + lane) * size, column + i * size, size);
  }
}

void StoreVAvx2(KvType type, const float* v, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) return StoreVScalar(type, v, head_dim, lane, tile);
  const int64_t size = type == KvType::kF32 ? 4 : 2;
  for (int d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint8_t row[kLanes * 4];
    ToStored(type, v + d, count, row);
    std::memcpy(tile + (static_cast<int64_t>(lane) * head_dim + d) * size, row, count * size);
  }
}

void AttendAvx2(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                const int32_t* limits, int columns, AttentionState state) {
  switch (span.type) {
    case KvType::kF32: return AttendByTiles(kTiles<KvType::kF32>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kF16: return AttendByTiles(kTiles<KvType::kF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kBF16: return AttendByTiles(kTiles<KvType::kBF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kQ8_0: return AttendByTiles(kTiles<KvType::kQ8_0>, span, q, q_stride, begins, limits, columns, state);
  }
}

void MergeAttentionAvx2(const AttentionState& granule, int columns, int value_dim, AttentionState state) {
  for (int c = 0; c < columns; ++c) {
    if (granule.max[c] == -__builtin_inff()) continue;
    const MergeFactors factors = MergeGranule(granule.max[c], granule.sum[c], state.max + c, state.sum + c);
    const __m256 old_factor = _mm256_set1_ps(factors.old_factor), new_factor = _mm256_set1_ps(factors.new_factor);
    const float* in = granule.acc + static_cast<int64_t>(c) * value_dim;
    float* out = state.acc + static_cast<int64_t>(c) * value_dim;
    int d = 0;
    for (; d + kLanes <= value_dim; d += kLanes) {
      const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(in + d), new_factor);
      _mm256_storeu_ps(out + d, _mm256_fmadd_ps(_mm256_loadu_ps(out + d), old_factor, scaled));
    }
    for (; d < value_dim; ++d) out[d] = __builtin_fmaf(out[d], factors.old_factor, in[d] * factors.new_factor);
  }
}

}  // namespace stagecoach
