// Attention over one granule with AVX2: scores of 16 positions in two vectors, values of 8 dimensions a vector.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

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
inline Floats LoadStored(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return Load(p);
  if constexpr (kType == KvType::kQ8_0) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  const __m128i bits = Load128(p);
  if constexpr (kType == KvType::kF16) return _mm256_cvtph_ps(bits);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline float Tree(const Floats* lanes) {
  const __m256 eight = lanes[0] + lanes[1];
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// 8 to 12 independent chains.
constexpr int ScoreTiles(int columns) { return columns == 1 ? 4 : columns == 2 ? 2 : 1; }
constexpr int ValueVectors(int columns) { return columns == 1 ? 8 : columns == 2 ? 4 : 2; }

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
  static constexpr AttendTables kTables = {kTiles<KvType::kF32>, kTiles<KvType::kF16>, kTiles<KvType::kBF16>,
                                           kTiles<KvType::kQ8_0>};
  AttendByTiles(kTables, span, q, q_stride, begins, limits, columns, state);
}

}  // namespace stagecoach
