// Attention over one granule with AVX-512: scores of 16 positions a vector, values of 16 dimensions a vector.

#include "stage_worker/kernels/avx512.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 16;

template <KvType kType>
inline constexpr int64_t kBytes = kType == KvType::kF32 ? 4 : 2;

// Up to 16 elements of the stored type as float; lanes outside of the mask are zero and their memory is not touched.
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
  const __m256i bits = Load256(p);
  if constexpr (kType == KvType::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Scores of T tiles of positions for C columns.
template <KvType kType, int C, int T>
void Scores(const AttendTile& tile, int first, float (*p)[kAttentionGranule]) {
  const uint8_t* k_tiles[T];
  for (int t = 0; t < T; ++t) k_tiles[t] = tile.span->k_tiles[first + t];
  const float* q[C];
  for (int c = 0; c < C; ++c) q[c] = tile.q[c];
  __m512 score[C][T];
  for (int c = 0; c < C; ++c) {
    for (int t = 0; t < T; ++t) score[c][t] = _mm512_setzero_ps();
  }
  const int head_dim = tile.span->head_dim;
  for (int d = 0; d < head_dim; ++d) {
    __m512 k[T];
    for (int t = 0; t < T; ++t) k[t] = LoadFull<kType>(k_tiles[t] + d * kLanes * kBytes<kType>);
    for (int c = 0; c < C; ++c) {
      const __m512 query = _mm512_set1_ps(q[c][d]);
      for (int t = 0; t < T; ++t) score[c][t] = _mm512_fmadd_ps(k[t], query, score[c][t]);
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(p[c] + (first + t) * kLanes, score[c][t]);
  }
}

// Scores to weights for one column, and the merge of the granule's maximum and sum. What lies beyond the limit becomes
// -inf first: those lanes may hold anything.
MergeFactors Softmax(float* p, int limit, float* max, float* sum) {
  const int tiles = (limit + kLanes - 1) / kLanes;
  const __mmask16 last_lanes = static_cast<__mmask16>(0xffffu >> (tiles * kLanes - limit));
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  float* last = p + (tiles - 1) * kLanes;
  _mm512_storeu_ps(last, _mm512_mask_loadu_ps(minus_infinity, last_lanes, last));
  __m512 largest = minus_infinity;
  for (int t = 0; t < tiles; ++t) largest = _mm512_max_ps(largest, _mm512_loadu_ps(p + t * kLanes));
  const float granule_max = _mm512_reduce_max_ps(largest) + 0.0f;  // never a negative zero
  __m512 lanes = _mm512_setzero_ps();
  for (int t = 0; t < tiles; ++t) {
    const __m512 weights = Exp(_mm512_sub_ps(_mm512_loadu_ps(p + t * kLanes), _mm512_set1_ps(granule_max)));
    _mm512_storeu_ps(p + t * kLanes, weights);
    lanes = _mm512_add_ps(lanes, weights);
  }
  float sums[kLanes];
  _mm512_storeu_ps(sums, lanes);
  return MergeGranule(granule_max, TreeSum(sums), max, sum);
}

// Adds the positions [begin, end) to D vectors of dimensions of C columns.
template <KvType kType, int C, int D, bool kMasked>
inline void AddValues(const AttentionSpan& span, const float* const* p, int begin, int end, int64_t d, __mmask16 mask,
                      __m512 (*acc)[D]) {
  for (int j = begin; j < end; ++j) {
    const uint8_t* row =
        span.v_tiles[j / kLanes] + (j % kLanes * static_cast<int64_t>(span.head_dim) + d) * kBytes<kType>;
    __m512 v[D];
    for (int i = 0; i < D; ++i) {
      v[i] = kMasked ? LoadMasked<kType>(mask, row) : LoadFull<kType>(row + i * kLanes * kBytes<kType>);
    }
    for (int c = 0; c < C; ++c) {
      const __m512 weight = _mm512_set1_ps(p[c][j]);
      for (int i = 0; i < D; ++i) acc[c][i] = _mm512_fmadd_ps(weight, v[i], acc[c][i]);
    }
  }
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others follow column by column, so that no column multiplies what it does not see.
template <KvType kType, int C, int D, bool kMasked>
void Values(const AttendTile& tile, const float (*p)[kAttentionGranule], const MergeFactors* factors, int64_t d,
            __mmask16 mask) {
  const AttentionSpan& span = *tile.span;
  int common = tile.limits[0];
  const float* weights[C];
  for (int c = 0; c < C; ++c) {
    weights[c] = p[c];
    common = tile.limits[c] < common ? tile.limits[c] : common;
  }
  __m512 acc[C][D];
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = _mm512_setzero_ps();
  }
  AddValues<kType, C, D, kMasked>(span, weights, 0, common, d, mask, acc);
  for (int c = 0; c < C; ++c) {
    AddValues<kType, 1, D, kMasked>(span, weights + c, common, tile.limits[c], d, mask, acc + c);
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      const __mmask16 lanes = kMasked ? mask : static_cast<__mmask16>(0xffff);
      const __m512 granule = _mm512_mul_ps(acc[c][i], _mm512_set1_ps(factors[c].new_factor));
      const __m512 old = _mm512_maskz_loadu_ps(lanes, out);
      _mm512_mask_storeu_ps(out, lanes, _mm512_fmadd_ps(old, _mm512_set1_ps(factors[c].old_factor), granule));
    }
  }
}

template <KvType kType, int C>
void Tile(const AttendTile& tile) {
  // Tiles of positions, and vectors of dimensions, at once: 8 to 16 independent chains.
  constexpr int kScoreTiles = C == 1 ? 8 : C <= 4 ? 4 : 2;
  constexpr int kValueVectors = C == 1 ? 8 : C <= 4 ? 4 : 2;
  alignas(64) float p[C][kAttentionGranule];
  int limit = 0;
  for (int c = 0; c < C; ++c) limit = tile.limits[c] > limit ? tile.limits[c] : limit;
  const int position_tiles = (limit + kLanes - 1) / kLanes;
  int t = 0;
  for (; t + kScoreTiles <= position_tiles; t += kScoreTiles) Scores<kType, C, kScoreTiles>(tile, t, p);
  for (; t < position_tiles; ++t) Scores<kType, C, 1>(tile, t, p);
  MergeFactors factors[C];
  for (int c = 0; c < C; ++c) factors[c] = Softmax(p[c], tile.limits[c], tile.max[c], tile.sum[c]);
  const int head_dim = tile.span->head_dim;
  int d = 0;
  for (; d + kValueVectors * kLanes <= head_dim; d += kValueVectors * kLanes) {
    Values<kType, C, kValueVectors, false>(tile, p, factors, d, 0);
  }
  for (; d + kLanes <= head_dim; d += kLanes) Values<kType, C, 1, false>(tile, p, factors, d, 0);
  if (d < head_dim) Values<kType, C, 1, true>(tile, p, factors, d, static_cast<__mmask16>((1u << (head_dim - d)) - 1));
}

template <KvType kType>
constexpr AttendTiles kTiles = {8,
                                {nullptr, Tile<kType, 1>, Tile<kType, 2>, Tile<kType, 3>, Tile<kType, 4>,
                                 Tile<kType, 5>, Tile<kType, 6>, Tile<kType, 7>, Tile<kType, 8>}};

}  // namespace

void AttendAvx512(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* limits, int columns,
                      AttentionState state) {
  switch (span.type) {
    case KvType::kF32: return AttendByTiles(kTiles<KvType::kF32>, span, q, q_stride, limits, columns, state);
    case KvType::kF16: return AttendByTiles(kTiles<KvType::kF16>, span, q, q_stride, limits, columns, state);
    case KvType::kBF16: return AttendByTiles(kTiles<KvType::kBF16>, span, q, q_stride, limits, columns, state);
    case KvType::kQ8_0: return kScalarKernels.attend(span, q, q_stride, limits, columns, state);
  }
}

}  // namespace stagecoach
