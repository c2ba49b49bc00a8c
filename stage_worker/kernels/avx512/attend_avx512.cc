// Attention over one granule with AVX-512: scores of 16 positions a vector, values of 16 dimensions a vector.

#include <cfloat>

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_attend.h"

namespace stagecoach {
namespace {

// 16 floats as F16 or BF16, rounded to nearest even.
__m256i ToKv16(KvType type, __m512 x) {
  return type == KvType::kF16 ? _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) : ToBf16(x);
}

// A group of 32 floats as Q8_0: codes, and the scale that is returned.
inline float Quantize(const float* x, uint8_t* codes) {
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + kLanes);
  // The second operand is the result when one is a NaN: a NaN is never the largest.
  const __m512 largest = _mm512_max_ps(_mm512_abs_ps(high), _mm512_max_ps(_mm512_abs_ps(low), _mm512_setzero_ps()));
  const float max = _mm512_reduce_max_ps(largest);
  const float scale = max / 127.0f < FLT_MIN ? 0.0f : max / 127.0f;
  const __mmask16 lanes = scale == 0.0f ? 0 : 0xffff;
  const __m512 round = Set(kRoundFloat), divisor = _mm512_set1_ps(scale);
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
inline Floats LoadStored(const uint8_t* p) {
  if constexpr (kType == KvType::kF32) return Load(p);
  if constexpr (kType == KvType::kQ8_0) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load128(p)));
  if constexpr (kType == KvType::kF16) return _mm512_cvtph_ps(Load256(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(Load256(p)), 16));
}

template <KvType kType>
inline Floats LoadFirst(const uint8_t* p, int count) {
  if constexpr (kType == KvType::kF32) return _mm512_maskz_loadu_ps(FirstLanes(count), p);
  const __m256i bits = _mm256_maskz_loadu_epi16(FirstLanes(count), p);
  if constexpr (kType == KvType::kF16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline Floats LoadFirstFloats(const float* p, int count) { return _mm512_maskz_loadu_ps(FirstLanes(count), p); }
inline void StoreFirstFloats(float* p, int count, Floats x) { _mm512_mask_storeu_ps(p, FirstLanes(count), x); }

inline void HideUnseen(float* p, int begin, int limit) {
  const Floats minus_infinity = Set(-__builtin_inff());
  if (begin % kLanes != 0) {
    float* const first = p + begin / kLanes * kLanes;
    Store(first, _mm512_mask_loadu_ps(minus_infinity, static_cast<Mask>(0xffffu << begin % kLanes), first));
  }
  float* const last = p + (limit - 1) / kLanes * kLanes;
  Store(last,
        _mm512_mask_loadu_ps(minus_infinity, static_cast<Mask>(0xffffu >> (kLanes - 1 - (limit - 1) % kLanes)), last));
}

inline float Tree(const Floats* lanes) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes[0]), _mm512_extractf32x8_ps(lanes[0], 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// 8 to 16 independent chains.
constexpr int ScoreTiles(int columns) { return columns == 1 ? 8 : columns <= 4 ? 4 : 2; }
constexpr int ValueVectors(int columns) { return ScoreTiles(columns); }

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
    const __m512 k16 = _mm512_maskz_loadu_ps(FirstLanes(count), k + d);
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
    const Mask mask = FirstLanes(count);
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
  static constexpr AttendTables kTables = {kTiles<KvType::kF32>, kTiles<KvType::kF16>, kTiles<KvType::kBF16>,
                                           kTiles<KvType::kQ8_0>};
  AttendByTiles(kTables, span, q, q_stride, begins, limits, columns, state);
}

}  // namespace stagecoach
