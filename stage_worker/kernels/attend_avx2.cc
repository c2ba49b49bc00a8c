// Attention over one granule with AVX2: scores of 16 positions in two vectors, values of 8 dimensions a vector.

#include "stage_worker/kernels/avx2.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 8;

template <KvType kType>
inline constexpr int64_t kBytes = kType == KvType::kF32 ? 4 : 2;

// Eight elements of the stored type as float.
template <KvType kType>
inline __m256 Load8(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return LoadFloats(p);
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

// Scores of T tiles of 16 positions for C columns.
template <KvType kType, int C, int T>
void Scores(const AttendTile& tile, int first, float (*p)[kAttentionGranule]) {
  const uint8_t* k_tiles[T];
  for (int t = 0; t < T; ++t) k_tiles[t] = tile.span->k_tiles[first + t];
  __m256 score[C][2 * T];
  for (int c = 0; c < C; ++c) {
    for (int t = 0; t < 2 * T; ++t) score[c][t] = _mm256_setzero_ps();
  }
  const int head_dim = tile.span->head_dim;
  for (int d = 0; d < head_dim; ++d) {
    __m256 query[C];
    for (int c = 0; c < C; ++c) query[c] = _mm256_set1_ps(tile.q[c][d]);
    for (int t = 0; t < 2 * T; ++t) {
      const __m256 k = Load8<kType>(k_tiles[t / 2] + (d * kTilePositions + t % 2 * kLanes) * kBytes<kType>);
      for (int c = 0; c < C; ++c) score[c][t] = _mm256_fmadd_ps(k, query[c], score[c][t]);
    }
  }
  for (int c = 0; c < C; ++c) {
    for (int t = 0; t < 2 * T; ++t) _mm256_storeu_ps(p[c] + first * kTilePositions + t * kLanes, score[c][t]);
  }
}

// Scores to weights for one column, and the merge of the granule's maximum and sum. What lies beyond the limit becomes
// -inf first: those places may hold anything.
MergeFactors Softmax(float* p, int limit, float* max, float* sum) {
  const int end = (limit + kTilePositions - 1) / kTilePositions * kTilePositions;
  for (int j = limit; j < end; ++j) p[j] = -__builtin_inff();
  __m256 largest = _mm256_set1_ps(-__builtin_inff());
  for (int j = 0; j < end; j += kLanes) largest = _mm256_max_ps(largest, _mm256_loadu_ps(p + j));
  const float granule_max = ReduceMax(largest) + 0.0f;  // never a negative zero
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int j = 0; j < end; j += kTilePositions) {
    for (int half = 0; half < 2; ++half) {
      float* place = p + j + half * kLanes;
      const __m256 weights = Exp(_mm256_sub_ps(_mm256_loadu_ps(place), _mm256_set1_ps(granule_max)));
      _mm256_storeu_ps(place, weights);
      lanes[half] = _mm256_add_ps(lanes[half], weights);
    }
  }
  float sums[kTilePositions];
  _mm256_storeu_ps(sums, lanes[0]);
  _mm256_storeu_ps(sums + kLanes, lanes[1]);
  return MergeGranule(granule_max, TreeSum(sums), max, sum);
}

// Adds the positions [begin, end) to D vectors of dimensions of C columns. part: how many dimensions the only vector
// has, 0 for all.
template <KvType kType, int C, int D, bool kPart>
inline void AddValues(const AttentionSpan& span, const float* const* p, int begin, int end, int64_t d, int part,
                      __m256 (*acc)[D]) {
  for (int j = begin; j < end; ++j) {
    const uint8_t* row = span.v_tiles[j / kTilePositions] +
                         (j % kTilePositions * static_cast<int64_t>(span.head_dim) + d) * kBytes<kType>;
    __m256 v[D];
    for (int i = 0; i < D; ++i) {
      v[i] = kPart ? LoadPart<kType>(row, part) : Load8<kType>(row + i * kLanes * kBytes<kType>);
    }
    for (int c = 0; c < C; ++c) {
      const __m256 weight = _mm256_set1_ps(p[c][j]);
      for (int i = 0; i < D; ++i) acc[c][i] = _mm256_fmadd_ps(weight, v[i], acc[c][i]);
    }
  }
}

// Merges a vector of a granule's weighted values into the state.
inline __m256 Merge(__m256 old, __m256 granule, MergeFactors factors) {
  return _mm256_fmadd_ps(old, _mm256_set1_ps(factors.old_factor),
                         _mm256_mul_ps(granule, _mm256_set1_ps(factors.new_factor)));
}

// The weighted values of D vectors of dimensions from d on, merged into the state. Positions that all columns see share
// the loads; the others follow column by column, so that no column multiplies what it does not see.
template <KvType kType, int C, int D, bool kPart>
void Values(const AttendTile& tile, const float (*p)[kAttentionGranule], const MergeFactors* factors, int64_t d,
            int part) {
  const AttentionSpan& span = *tile.span;
  int common = tile.limits[0];
  const float* weights[C];
  for (int c = 0; c < C; ++c) {
    weights[c] = p[c];
    common = tile.limits[c] < common ? tile.limits[c] : common;
  }
  __m256 acc[C][D];
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < D; ++i) acc[c][i] = _mm256_setzero_ps();
  }
  AddValues<kType, C, D, kPart>(span, weights, 0, common, d, part, acc);
  for (int c = 0; c < C; ++c) {
    AddValues<kType, 1, D, kPart>(span, weights + c, common, tile.limits[c], d, part, acc + c);
    for (int i = 0; i < D; ++i) {
      float* out = tile.acc[c] + d + i * kLanes;
      if constexpr (kPart) {
        float eight[kLanes] = {};
        std::memcpy(eight, out, part * sizeof(float));
        _mm256_storeu_ps(eight, Merge(_mm256_loadu_ps(eight), acc[c][i], factors[c]));
        std::memcpy(out, eight, part * sizeof(float));
      } else {
        _mm256_storeu_ps(out, Merge(_mm256_loadu_ps(out), acc[c][i], factors[c]));
      }
    }
  }
}

template <KvType kType, int C>
void Tile(const AttendTile& tile) {
  // Tiles of positions, and vectors of dimensions, at once: about 8 independent chains.
  constexpr int kScoreTiles = C == 1 ? 4 : C == 2 ? 2 : 1;
  constexpr int kValueVectors = C == 1 ? 8 : C == 2 ? 4 : 2;
  alignas(32) float p[C][kAttentionGranule];
  int limit = 0;
  for (int c = 0; c < C; ++c) limit = tile.limits[c] > limit ? tile.limits[c] : limit;
  const int position_tiles = (limit + kTilePositions - 1) / kTilePositions;
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
  if (d < head_dim) Values<kType, C, 1, true>(tile, p, factors, d, head_dim - d);
}

template <KvType kType>
constexpr AttendTiles kTiles = {4, {nullptr, Tile<kType, 1>, Tile<kType, 2>, Tile<kType, 3>, Tile<kType, 4>}};

}  // namespace

void AttendAvx2(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* limits, int columns,
                AttentionState state) {
  switch (span.type) {
    case KvType::kF32: return AttendByTiles(kTiles<KvType::kF32>, span, q, q_stride, limits, columns, state);
    case KvType::kF16: return AttendByTiles(kTiles<KvType::kF16>, span, q, q_stride, limits, columns, state);
    case KvType::kBF16: return AttendByTiles(kTiles<KvType::kBF16>, span, q, q_stride, limits, columns, state);
    case KvType::kQ8_0: return kScalarKernels.attend(span, q, q_stride, limits, columns, state);
  }
}

}  // namespace stagecoach
