// Attention over one granule with AVX-512: scores of 16 positions a vector, values of 16 dimensions a vector.

#include <cfloat>

#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/avx512.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 16;

// 16 floats as F16 or BF16, rounded to nearest even.
__m256i ToKv16(KvType type, __m512 x) {
  if (type == KvType::kF16) return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000)), 16));
}

// A group of 32 floats as Q8_0: codes, and the scale that is returned.
inline float Quantize(const float* x, uint8_t* codes) {
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + kLanes);
  // The second operand is the result when one is a NaN: a NaN is never the largest.
  const __m512 largest = _mm512_max_ps(_mm512_abs_ps(high), _mm512_max_ps(_mm512_abs_ps(low), _mm512_setzero_ps()));
  const float max = _mm512_reduce_max_ps(largest);
  const float scale = max / 127.0f < FLT_MIN ? 0.0f : max / 127.0f;
  const __mmask16 lanes = scale == 0.0f ? 0 : 0xffff;
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  const __m512 round = _mm512_set1_ps(12582912.0f), divisor = _mm512_set1_ps(scale);
  const __m512 first = _mm512_add_ps(_mm512_maskz_div_ps(lanes, low, divisor), round);
  const __m512 second = _mm512_add_ps(_mm512_maskz_div_ps(lanes, high, divisor), round);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(_mm512_castps_si512(first)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + kLanes), _mm512_cvtepi32_epi8(_mm512_castps_si512(second)));
  return scale;
}

// The scale's place in a Q8_0 tile.
inline uint8_t* ScaleOf(uint8_t* tile, int d, int lane) { return tile + d / kKvGroup * kKvScaleBytes + lane * 4; }

void StoreQuantizedK(const float* k, int head_dim, int lane, uint8_t* tile) {
  for (int d = 0; d < head_dim; d += kKvGroup) {
    uint8_t codes[kKvGroup];
    const float scale = Quantize(k + d, codes);
    std::memcpy(ScaleOf(tile, d, lane), &scale, sizeof(scale));
    uint8_t* out = tile + KvCodesOffset(KvType::kQ8_0, head_dim) + d * kTilePositions + lane;
    for (int i = 0; i < kKvGroup; ++i) out[i * kTilePositions] = codes[i];
  }
}

void StoreQuantizedV(const float* v, int head_dim, int lane, uint8_t* tile) {
  uint8_t* row = tile + KvCodesOffset(KvType::kQ8_0, head_dim) + static_cast<int64_t>(lane) * head_dim;
  for (int d = 0; d < head_dim; d += kKvGroup) {
    const float scale = Quantize(v + d, row + d);
    std::memcpy(ScaleOf(tile, d, lane), &scale, sizeof(scale));
  }
}

template <KvType kType>
inline constexpr int64_t kBytes = kType == KvType::kF32    ? 4
                                  : kType == KvType::kQ8_0 ? 1
                                                           : 2;

// Up to 16 elements of the stored type as float; lanes outside of the mask are zero and their memory is not touched.
// Q8_0 gives the codes.
template <KvType kType>
inline __m512 LoadMasked(__mmask16 mask, const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return _mm512_maskz_loadu_ps(mask, p);
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, p);
  if constexpr (kType == KvType::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <KvType kType>
inline __m512 LoadFull(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return _mm512_loadu_ps(p);
  if constexpr (kType == KvType::kQ8_0) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  if constexpr (kType == KvType::kF16) return _mm512_cvtph_ps(Load256(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
}

// The scales of a group of dimensions of a Q8_0 tile.
inline __m512 LoadScales(const uint8_t* tile, int64_t group) { return _mm512_loadu_ps(tile + group * kKvScaleBytes); }

// Vectors of stored elements in a line of the cache.
template <KvType kType>
inline constexpr int kLineVectors = 64 / (kLanes * kBytes<kType>);

// Asks for a line that is read a phase later: V while K is read, and the next K while V is.
inline void Ahead(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

// part += K^T q over the dimensions [begin, end), for T tiles of positions and C columns. V's tiles are asked for at
// the places that are read in K's.
template <KvType kType, int C, int T, bool kAhead>
inline void AddScores(const uint8_t* const* codes, const uint8_t* const* v_codes, const float* const* q, int begin,
                      int end, __m512 (*part)[T]) {
  constexpr int kLine = kAhead ? kLineVectors<kType> : 1;  // dimensions
  for (int line = begin; line < end; line += kLine) {
    for (int t = 0; kAhead && t < T; ++t) Ahead(v_codes[t] + line * kLanes * kBytes<kType>);
    for (int d = line; d < line + kLine; ++d) {
      __m512 k[T];
      for (int t = 0; t < T; ++t) k[t] = LoadFull<kType>(codes[t] + d * kLanes * kBytes<kType>);
      for (int c = 0; c < C; ++c) {
        const __m512 query = _mm512_set1_ps(q[c][d]);
        for (int t = 0; t < T; ++t) part[c][t] = _mm512_fmadd_ps(k[t], query, part[c][t]);
      }
    }
  }
}

// Scores of T tiles of positions for C columns.
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
    __m512 part[C][T];
    for (int c = 0; c < C; ++c) {
      for (int t = 0; t < T; ++t) part[c][t] = _mm512_setzero_ps();
    }
    AddScores<kType, C, T, kAhead>(codes, v_codes, q, begin, begin + step, part);
    for (int t = 0; t < T; ++t) {
      __m512 scale;
      if constexpr (kType == KvType::kQ8_0) {
        scale = LoadScales(k_tiles[t], begin / kKvGroup);
        if (kAhead) Ahead(tile.span->v_tiles[first + t] + begin / kKvGroup * kKvScaleBytes);
      }
      for (int c = 0; c < C; ++c) {
        float* out = p[c] + (first + t) * kLanes;
        if constexpr (kType == KvType::kQ8_0) {
          const __m512 before = begin == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out);
          part[c][t] = _mm512_fmadd_ps(scale, part[c][t], before);
        }
        _mm512_storeu_ps(out, part[c][t]);
      }
    }
  }
}

// TreeSum of the lanes.
inline float Tree(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Scores of one column to weights in place, from the tile of `begin` on. What the column does not see of the first and
// the last tile becomes -inf first: those places may hold anything. Returns the maximum, never a negative zero, and the
// sum of the weights; -inf and nothing else when every score is -inf.
inline float Softmax(float* p, int begin, int limit, float* sum) {
  const int first = begin / kLanes;
  const int tiles = (limit + kLanes - 1) / kLanes;
  const __mmask16 last_lanes = static_cast<__mmask16>(0xffffu >> (tiles * kLanes - limit));
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  if (begin % kLanes != 0) {
    const __mmask16 first_lanes = static_cast<__mmask16>(0xffffu << begin % kLanes);
    _mm512_storeu_ps(p + first * kLanes, _mm512_mask_loadu_ps(minus_infinity, first_lanes, p + first * kLanes));
  }
  float* last = p + (tiles - 1) * kLanes;
  _mm512_storeu_ps(last, _mm512_mask_loadu_ps(minus_infinity, last_lanes, last));
  __m512 largest = minus_infinity;
  for (int t = first; t < tiles; ++t) largest = _mm512_max_ps(largest, _mm512_loadu_ps(p + t * kLanes));
  const float max = _mm512_reduce_max_ps(largest) + 0.0f;
  if (max == -__builtin_inff()) return max;
  __m512 lanes = _mm512_setzero_ps();
  for (int t = first; t < tiles; ++t) {
    const __m512 weights = Exp(_mm512_sub_ps(_mm512_loadu_ps(p + t * kLanes), _mm512_set1_ps(max)));
    _mm512_storeu_ps(p + t * kLanes, weights);
    lanes = _mm512_add_ps(lanes, weights);
  }
  *sum = Tree(lanes);
  return max;
}

// What a tile works with. A lane a column.
template <int C>
struct Weights {
  alignas(64) float p[C][kAttentionGranule];
  float old_factor[kLanes], new_factor[kLanes];
  int begins[C], limits[C];  // both 0 for a column whose scores are all -inf: its state does not change
  SharedPositions shared;
};

// Scores to weights, and the merge of the granule's maxima and sums: MergeGranule in lanes.
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
  const __m512 merged = _mm512_max_ps(_mm512_loadu_ps(old_max), _mm512_loadu_ps(max));
  const __m512 old_factor = Exp(_mm512_sub_ps(_mm512_loadu_ps(old_max), merged));
  const __m512 new_factor = Exp(_mm512_sub_ps(_mm512_loadu_ps(max), merged));
  _mm512_storeu_ps(w->old_factor, old_factor);
  _mm512_storeu_ps(w->new_factor, new_factor);
  _mm512_storeu_ps(max, merged);
  _mm512_storeu_ps(
      sum, _mm512_fmadd_ps(_mm512_loadu_ps(old_sum), old_factor, _mm512_mul_ps(_mm512_loadu_ps(sum), new_factor)));
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
// with the row i / (D / G) * stride + c of weights.
template <KvType kType, int N, int D, int G, bool kMasked, bool kAhead>
inline void AddValues(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride, int begin,
                      int end, int64_t d, __mmask16 mask, __m512 (*acc)[D]) {
  for (int j = begin; j < end; ++j) {
    const uint32_t tile = static_cast<uint32_t>(j) / kLanes, lane = static_cast<uint32_t>(j) % kLanes;
    const int64_t offset = (lane * static_cast<int64_t>(span.value_dim) + d) * kBytes<kType>;
    const uint8_t* row = span.v_tiles[tile] + KvCodesOffset(kType, span.value_dim) + offset;
    const uint8_t* next = span.next_k_tiles[tile] + KvCodesOffset(kType, span.head_dim) + offset;
    for (int i = 0; kAhead && i < D; i += kLineVectors<kType>) Ahead(next + i * kLanes * kBytes<kType>);
    __m512 v[D];
    for (int i = 0; i < D; ++i) {
      if constexpr (kMasked) {
        v[i] = LoadMasked<kType>(mask, row);
      } else {
        v[i] = LoadFull<kType>(row + i * kLanes * kBytes<kType>);
      }
    }
    for (int c = 0; c < N; ++c) {
      for (int g = 0; g < G; ++g) {
        const __m512 weight = _mm512_set1_ps(weights[g * stride + c][j]);
        for (int i = g * D / G; i < (g + 1) * D / G; ++i) acc[c][i] = _mm512_fmadd_ps(weight, v[i], acc[c][i]);
      }
    }
  }
}

// scaled[g * C + c] = the weights of column c times V's scales of the group of dimensions `group` + g.
template <int C, int G, bool kAhead>
inline void ScaleWeights(const AttentionSpan& span, const Weights<C>& w, int64_t group,
                         float (*scaled)[kAttentionGranule]) {
  for (int c = 0; c < C; ++c) {
    for (int t = w.begins[c] / kLanes; t * kLanes < w.limits[c]; ++t) {
      const __m512 weights = _mm512_loadu_ps(w.p[c] + t * kLanes);
      for (int g = 0; g < G; ++g) {
        if (kAhead && c == 0) Ahead(span.next_k_tiles[t] + (group + g) * kKvScaleBytes);
        _mm512_storeu_ps(scaled[g * C + c] + t * kLanes,
                         _mm512_mul_ps(weights, LoadScales(span.v_tiles[t], group + g)));
      }
    }
  }
}

// The sums of the positions [begin, end) of one column alone. Out of line: few tiles of a window have such positions.
template <KvType kType, int D, int G, bool kMasked>
[[gnu::noinline]] void AddAlone(const AttentionSpan& span, const float (*weights)[kAttentionGranule], int stride,
                                int begin, int end, int64_t d, __mmask16 mask, float* sums) {
  __m512 acc[1][D];
  for (int i = 0; i < D; ++i) acc[0][i] = _mm512_setzero_ps();
  AddValues<kType, 1, D, G, kMasked, false>(span, weights, stride, begin, end, d, mask, acc);
  for (int i = 0; i < D; ++i) _mm512_storeu_ps(sums + i * kLanes, acc[0][i]);
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others are added column by column.
template <KvType kType, int C, int D, bool kMasked, bool kAhead>
void Values(const AttendTile& tile, const Weights<C>& w, int64_t d, __mmask16 mask) {
  constexpr int kGroups = kType == KvType::kQ8_0 ? D * kLanes / kKvGroup : 1;
  const AttentionSpan& span = *tile.span;
  const SharedPositions shared = w.shared;
  const float(*weights)[kAttentionGranule] = w.p;
  alignas(64) float scaled[kType == KvType::kQ8_0 ? kGroups * C : 1][kAttentionGranule];
  if constexpr (kType == KvType::kQ8_0) {
    ScaleWeights<C, kGroups, kAhead>(span, w, d / kKvGroup, scaled);
    weights = scaled;
  }
  __m512 acc[C][D];
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = _mm512_setzero_ps();
  }
  if (shared.begin > tile.begin) {
    alignas(64) float sums[C][D * kLanes];
    for (int c = 0; c < C; ++c) {
      const int end = w.limits[c] < shared.begin ? w.limits[c] : shared.begin;
      AddAlone<kType, D, kGroups, kMasked>(span, weights + c, C, w.begins[c], end, d, mask, sums[c]);
    }
    // A loop of its own: one with calls in it is not unrolled, and the sums would begin in memory.
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < D; ++i) acc[c][i] = _mm512_load_ps(sums[c] + i * kLanes);
    }
  }
  AddValues<kType, C, D, kGroups, kMasked, kAhead>(span, weights, C, shared.begin, shared.end, d, mask, acc);
  for (int c = 0; c < C; ++c) {
    AddValues<kType, 1, D, kGroups, kMasked, kAhead>(span, weights + c, C, shared.end, w.limits[c], d, mask, acc + c);
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      const __mmask16 lanes = kMasked ? mask : static_cast<__mmask16>(0xffff);
      // No negative zero, so that a granule gives the same bits when it is merged later.
      const __m512 sum = _mm512_add_ps(acc[c][i], _mm512_setzero_ps());
      const __m512 granule = _mm512_mul_ps(sum, _mm512_set1_ps(w.new_factor[c]));
      const __m512 old = _mm512_maskz_loadu_ps(lanes, out);
      _mm512_mask_storeu_ps(out, lanes, _mm512_fmadd_ps(old, _mm512_set1_ps(w.old_factor[c]), granule));
    }
  }
}

// The scores that a tile's columns see to capped ones; also what lies beside them in a vector, which Softmax leaves
// out.
template <int C>
void CapScores(const AttendTile& tile, float (*scores)[kAttentionGranule]) {
  const __m512 cap = _mm512_set1_ps(tile.span->score_cap);
  for (int c = 0; c < C; ++c) {
    for (int j = tile.begins[c] / kLanes * kLanes; j < tile.limits[c]; j += kLanes) {
      _mm512_storeu_ps(scores[c] + j, SoftCap(_mm512_loadu_ps(scores[c] + j), cap));
    }
  }
}

template <KvType kType, int C, bool kAhead = true>
void Tile(const AttendTile& tile) {
  // Tiles of positions, and vectors of dimensions, at once: 8 to 16 independent chains.
  constexpr int kScoreTiles = C == 1 ? 8 : C <= 4 ? 4 : 2;
  constexpr int kValueVectors = C == 1 ? 8 : C <= 4 ? 4 : 2;
  Weights<C> w;
  const int position_tiles = (tile.limit + kLanes - 1) / kLanes;
  int t = tile.begin / kLanes;
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
    if (d < value_dim) {
      Values<kType, C, 1, true, kAhead>(tile, w, d, static_cast<__mmask16>((1u << (value_dim - d)) - 1));
    }
  }
}

template <KvType kType>
constexpr AttendTiles kTiles = {8,
                                {nullptr, Tile<kType, 1>, Tile<kType, 2>, Tile<kType, 3>, Tile<kType, 4>,
                                 Tile<kType, 5>, Tile<kType, 6>, Tile<kType, 7>, Tile<kType, 8>},
                                Tile<kType, 8, false>};

}  // namespace

void StoreKAvx512(KvType type, const float* k, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) return StoreQuantizedK(k, head_dim, lane, tile);
  const int64_t size = type == KvType::kF32 ? 4 : 2;
  for (int d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
    const __m512 k16 = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), k + d);
    uint8_t column[kLanes * 4];
    if (type == KvType::kF32) {
      _mm512_storeu_ps(column, k16);
      for (int i = 0; i < count; ++i) std::memcpy(tile + ((d + i) * kLanes + lane) * size, column + i * 4, 4);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(column), ToKv16(type, k16));
      for (int i = 0; i < count; ++i) std::memcpy(tile + ((d + i) * kLanes + lane) * size, column + i * 2, 2);
    }
  }
}

void StoreVAvx512(KvType type, const float* v, int head_dim, int lane, uint8_t* tile) {
  if (type == KvType::kQ8_0) return StoreQuantizedV(v, head_dim, lane, tile);
  const int64_t size = type == KvType::kF32 ? 4 : 2;
  uint8_t* row = tile + lane * head_dim * size;
  for (int d = 0; d < head_dim; d += kLanes) {
    const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    const __m512 v16 = _mm512_maskz_loadu_ps(mask, v + d);
    if (type == KvType::kF32) {
      _mm512_mask_storeu_ps(row + d * size, mask, v16);
    } else {
      _mm256_mask_storeu_epi16(row + d * size, mask, ToKv16(type, v16));
    }
  }
}

void AttendAvx512(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                  const int32_t* limits, int columns, AttentionState state) {
  switch (span.type) {
    case KvType::kF32: return AttendByTiles(kTiles<KvType::kF32>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kF16: return AttendByTiles(kTiles<KvType::kF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kBF16: return AttendByTiles(kTiles<KvType::kBF16>, span, q, q_stride, begins, limits, columns, state);
    case KvType::kQ8_0: return AttendByTiles(kTiles<KvType::kQ8_0>, span, q, q_stride, begins, limits, columns, state);
  }
}

void MergeAttentionAvx512(const AttentionState& granule, int columns, int value_dim, AttentionState state) {
  for (int c = 0; c < columns; ++c) {
    if (granule.max[c] == -__builtin_inff()) continue;
    const MergeFactors factors = MergeGranule(granule.max[c], granule.sum[c], state.max + c, state.sum + c);
    const __m512 old_factor = _mm512_set1_ps(factors.old_factor), new_factor = _mm512_set1_ps(factors.new_factor);
    const float* in = granule.acc + static_cast<int64_t>(c) * value_dim;
    float* out = state.acc + static_cast<int64_t>(c) * value_dim;
    for (int d = 0; d < value_dim; d += kLanes) {
      const int count = value_dim - d < kLanes ? value_dim - d : kLanes;
      const __mmask16 lanes = static_cast<__mmask16>((1u << count) - 1);
      const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, in + d), new_factor);
      const __m512 old = _mm512_maskz_loadu_ps(lanes, out + d);
      _mm512_mask_storeu_ps(out + d, lanes, _mm512_fmadd_ps(old, old_factor, scaled));
    }
  }
}

}  // namespace stagecoach
