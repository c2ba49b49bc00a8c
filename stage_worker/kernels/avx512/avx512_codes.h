#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_CODES_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_CODES_H_

// Codes and scales of the integer types in AVX-512 registers, by the layout of a panel (panel_layout.h). Part of
// avx512_integer.h, which says why everything is in an unnamed namespace.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kGroups = kCodeBlock / 4;  // dot instructions a block

constexpr int HalvesOf(const IntegerLayout& layout) { return layout.halves ? 2 : 1; }

// The largest byte that Codes gives.
constexpr int MaxCode(const IntegerLayout& layout) {
  if (layout.tabled) {
    int largest = 0;
    for (int i = 0; i < 16; ++i) largest = layout.table[i] > largest ? layout.table[i] : largest;
    return largest;
  }
  constexpr int kLargest[] = {255, 15, 31, 63, 3, 7, 2, 2};  // by CodeFormat
  return kLargest[static_cast<int>(layout.codes)];
}

inline __m512i ShiftLeft16(__m512i v, int by) {
  return by == 0 ? v : by > 0 ? _mm512_slli_epi16(v, by) : _mm512_srli_epi16(v, -by);
}

inline __m512i Masked(__m512i v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask))); }

// (bits & mask) | low
inline __m512i WithBits(__m512i bits, int mask, __m512i low) {
  return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi8(static_cast<char>(mask)), low, 0xea);
}

// `kCount` vectors from `at` on, each loaded once: left to itself g++ loads them again for every group, and loads are
// what bounds one row. No array, which g++ would keep in memory.
template <int kCount>
struct Loaded {
  __m512i first;
  Loaded<kCount - 1> others;

  [[gnu::always_inline]] explicit Loaded(const uint8_t* at) : first(Pinned(at)), others(at + kVectorBytes) {}
  template <int v>
  [[gnu::always_inline]] __m512i Vector() const {
    if constexpr (v == 0)
      return first;
    else
      return others.template Vector<v - 1>();
  }
  [[gnu::always_inline]] static __m512i Pinned(const uint8_t* at) {
    __m512i vector = _mm512_loadu_si512(at);
    asm("" : "+v"(vector));
    return vector;
  }
};
template <>
struct Loaded<0> {
  explicit Loaded(const uint8_t* /*at*/) {}
};

// The codes of one block as they are packed.
template <IntegerLayout kLayout>
struct PackedCodes {
  static constexpr bool kBytes = kLayout.codes == CodeFormat::kU8 || kLayout.codes == CodeFormat::kTrits;  // unpacked

  const uint8_t* block;
  Loaded<kBytes ? 0 : kLayout.vectors> vectors;

  [[gnu::always_inline]] explicit PackedCodes(const uint8_t* at) : block(at), vectors(at) {}

  // Group g as bytes, before the bias.
  template <int g>
  [[gnu::always_inline]] __m512i Group() const {
    if constexpr (kBytes) {
      return _mm512_loadu_si512(block + g * kVectorBytes);
    } else if constexpr (kLayout.codes == CodeFormat::kBit) {
      return Masked(ShiftLeft16(vectors.template Vector<0>(), 1 - g), 2);
    } else if constexpr (kLayout.codes == CodeFormat::k2Bits) {
      return Masked(ShiftLeft16(vectors.template Vector<g / 4>(), -2 * (g % 4)), 3);
    } else if constexpr (kLayout.codes == CodeFormat::k2BitsBit) {
      return WithBits(ShiftLeft16(vectors.template Vector<2>(), 2 - g), 4,
                      Masked(ShiftLeft16(vectors.template Vector<g / 4>(), -2 * (g % 4)), 3));
    } else {
      const __m512i nibbles = Masked(ShiftLeft16(vectors.template Vector<g % 4>(), g < 4 ? 0 : -4), 15);
      if constexpr (kLayout.codes == CodeFormat::kNibbleBit) {
        return WithBits(ShiftLeft16(vectors.template Vector<4>(), 4 - g), 16, nibbles);
      }
      if constexpr (kLayout.codes == CodeFormat::kNibble2Bits) {
        return WithBits(ShiftLeft16(vectors.template Vector<4 + g / 4>(), 4 - 2 * (g % 4)), 48, nibbles);
      }
      if constexpr (kLayout.tabled) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Load128(kLayout.table)), nibbles);
      }
      return nibbles;
    }
  }
};

// 256 columns of TQ1_0 as 64 groups of bytes 0 .. 2.
inline void UnpackTrits(const uint8_t* in, uint8_t* out) {
  for (int v = 0; v < kTritsVectors; ++v) {
    __m512i digits = _mm512_loadu_si512(in + v * kVectorBytes);
    const int first = v < 8 ? v : v < 12 ? 32 + v : 60, step = v < 8 ? 8 : v < 12 ? 4 : 1;  // in groups
    const int count = v < 12 ? 5 : 4;
    for (int d = 0; d < count; ++d) {
      // digits * 3 >> 8: the average of x and x / 2, rounded down each time, is 3 x / 4.
      const __m512i less = _mm512_subs_epu8(digits, _mm512_set1_epi8(1));
      const __m512i scaled = _mm512_avg_epu8(less, _mm512_avg_epu8(less, _mm512_setzero_si512()));
      _mm512_store_si512(out + (first + d * step) * kVectorBytes, Masked(_mm512_srli_epi16(scaled, 6), 3));
      digits = _mm512_add_epi8(digits, _mm512_add_epi8(digits, digits));
    }
  }
}

inline __m512 HalvesToFloats(const uint8_t* p) { return _mm512_cvtph_ps(Load256(p)); }

inline __m512 BytesToFloats(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }

// Where a panel keeps the scales and sub-scales of one block of 32 columns.
struct ScalesAt {
  const uint8_t* d;
  const uint8_t* sub;
};

template <IntegerLayout kLayout>
inline ScalesAt FindScales(const uint8_t* panel, int64_t sub_scales, int64_t block) {
  return {panel + block / (kLayout.scale_columns / kCodeBlock) * kLayout.scale_bytes,
          panel + sub_scales + block * kLayout.sub_scale_bytes};
}

// The scales of half h of a block, or of all of it.
template <IntegerLayout kLayout>
inline __m512 LoadScale(const ScalesAt& at, int h) {
  using S = ScaleFormat;
  if constexpr (kLayout.scales == S::kE8m0) {
    // 2^(e - 128): the exponent field e - 1, or a subnormal.
    const __m512i e = _mm512_cvtepu8_epi32(Load128(at.d));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
  }
  const __m512 d = HalvesToFloats(at.d);
  if constexpr (kLayout.sub_scale_bytes == 0) return d;
  const __m128i bytes = Load128(at.sub + 16 * h);
  if constexpr (kLayout.scales == S::kSub32Min) return _mm512_mul_ps(d, BytesToFloats(bytes));
  if constexpr (kLayout.scales == S::kSub16Min) {
    const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
    return _mm512_mul_ps(d, BytesToFloats(low));
  }
  return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

// The same for the minima; for types with sub-scales, the amount to subtract.
template <IntegerLayout kLayout>
inline __m512 LoadMinimum(const ScalesAt& at, int h) {
  const __m512 m = HalvesToFloats(at.d + 2 * kPanelRows);
  if constexpr (kLayout.scales == ScaleFormat::kSub32Min) return _mm512_mul_ps(m, BytesToFloats(Load128(at.sub + 16)));
  if constexpr (kLayout.scales == ScaleFormat::kSub16Min) {
    const __m128i high = _mm_and_si128(_mm_srli_epi16(Load128(at.sub + 16 * h), 4), _mm_set1_epi8(15));
    return _mm512_mul_ps(m, BytesToFloats(high));
  }
  return m;
}

inline __m512 BroadcastFloat(const int32_t* p) {
  float x;
  std::memcpy(&x, p, sizeof(x));
  return _mm512_set1_ps(x);
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_CODES_H_
