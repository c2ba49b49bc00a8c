#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_INTEGER_H_

// Matrix products of the integer types with vectors of 256 bits; included by the units that choose how bytes are
// multiplied, and by nothing else.

#include <climits>

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

using Bytes = __m256i;
constexpr int64_t kAheadBytes = 8192;  // before the codes in use: measured best of 2 to 16 KiB

// The processor does not prefetch across the sections of a panel; doing it here doubles the speed from memory. Each
// block prefetches its share of a panel's bytes, of any section. Past the span: the panels that are read next; without
// any, a line already in cache, because useless fetches (a third of all in short runs) cost as much as useful ones.
struct Fetch {
  const uint8_t* ahead;  // of block 0
  const uint8_t* end;    // of the span
  int64_t beyond;        // from there to what is asked for instead

  // Codes are used from their section on, and long panels have much before it.
  Fetch(const PanelSpan& span, const uint8_t* panel, const PanelSections& sections)
      : ahead(panel + sections.codes + kAheadBytes),
        end(span.data + span.panels * sections.bytes),
        beyond(span.next == nullptr ? panel - ahead : span.next - end) {}
  void Advance(int64_t bytes) { ahead += bytes; }
  template <int kBytes>
  void Block(int64_t block) const {
    const uint8_t* at = ahead + block * kBytes;
    if (at >= end) [[unlikely]]
      at += beyond;
    for (int byte = 0; byte < kBytes; byte += kVectorBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(at + byte), _MM_HINT_T0);
    }
  }
};

}  // namespace
}  // namespace stagecoach

#include "stage_worker/kernels/vector_integer.h"

namespace stagecoach {
namespace {

// What the unit defines beside ShapeOf: adds the products of group g, in the lanes of one vector, to *dot, or to *sum16
// until enough of them are there. magnitude: |w|, of shapes that ask for it.
template <Shape kShape, int g>
inline void AddGroup(__m256i w, __m256i magnitude, __m256i x, __m256i* sum16, __m256i* dot);

// How far a start of a sum, which is for a bias of 2^7, is shifted.
constexpr int BiasShift(int bias) {
  int shift = 7;
  for (; bias > 1; bias /= 2) --shift;
  return shift;
}

// Bytes need no decoding but for their magnitudes; codes of few bits need the most.
constexpr int PackedColumns(const IntegerLayout& layout) {
  return layout.codes == CodeFormat::kU8 && !ShapeOf(layout).magnitudes ? INT_MAX
         : layout.vectors >= 4                                          ? 2 * kTileColumns
                                                                        : kTileColumns;
}

inline Bytes LoadBytes(const uint8_t* p) { return Load256(p); }
inline void StoreBytes(uint8_t* p, Bytes x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
template <int kLeft>
inline Bytes Shift(Bytes x) {
  return kLeft >= 0 ? _mm256_slli_epi16(x, kLeft < 0 ? 0 : kLeft) : _mm256_srli_epi16(x, kLeft < 0 ? -kLeft : 0);
}
inline Bytes KeepBits(Bytes x, int bits) { return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(bits))); }
inline Bytes BitOr(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
inline Bytes Minus(Bytes x, int bias) { return _mm256_sub_epi8(x, _mm256_set1_epi8(static_cast<char>(bias))); }
inline Bytes Magnitudes(Bytes x) { return _mm256_abs_epi8(x); }
inline Bytes LoadTable(const uint8_t* table) { return _mm256_broadcastsi128_si256(Load128(table)); }
inline Bytes LookUp(Bytes table, Bytes codes) { return _mm256_shuffle_epi8(table, codes); }

inline Floats LoadHalfFloats(const uint8_t* p) { return _mm256_cvtph_ps(Load128(p)); }
template <bool kSigned>
inline Ints LoadSmall(const uint8_t* p) {
  int64_t eight;
  std::memcpy(&eight, p, sizeof(eight));
  const __m128i bytes = _mm_cvtsi64_si128(eight);
  return kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
}
inline Ints Nibbles(Ints bytes, bool high) {
  return high ? _mm256_srli_epi32(bytes, 4) : _mm256_and_si256(bytes, _mm256_set1_epi32(15));
}
inline Floats PowersOfTwo(Ints e) {
  const Ints normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const Ints subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const Ints small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}
inline Floats ToFloats(Ints x) { return _mm256_cvtepi32_ps(x); }
inline Floats ActivationSum(int32_t start, float scale) {
  const Ints sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_srai_epi32(_mm256_set1_epi32(start), 7));
  return ToFloats(sum) * Set(scale);
}

// The exact products of the groups [g, end) of a block, C columns, added to dot.
template <int g, int end, class Source, int C>
inline void AddGroups(const Source& source, const int8_t* q, int64_t cols, int64_t block, __m256i (*sums)[2],
                      __m256i (*dot)[2]) {
  const __m256i w[2] = {source.template Codes<g>(block, 0), source.template Codes<g>(block, 1)};
  __m256i magnitudes[2] = {};
  if constexpr (Source::kShape.magnitudes) {
    magnitudes[0] = source.template Magnitude<g>(block, 0);
    magnitudes[1] = source.template Magnitude<g>(block, 1);
  }
  for (int c = 0; c < C; ++c) {
    int32_t four;
    std::memcpy(&four, q + c * cols + 4 * g, sizeof(four));
    const __m256i x = _mm256_set1_epi32(four);
    for (int half = 0; half < 2; ++half) {
      AddGroup<Source::kShape, g>(w[half], magnitudes[half], x, &sums[c][half], &dot[c][half]);
    }
  }
  if constexpr (g + 1 < end) AddGroups<g + 1, end, Source, C>(source, q, cols, block, sums, dot);
}

template <int part, class Source, int C>
inline void Products(const Source& source, const Columns& in, int64_t block, Ints (*dot)[kVectors]) {
  constexpr Shape kShape = Source::kShape;
  constexpr int kSize = kShape.halves ? kGroups / 2 : kGroups;
  constexpr int kBiasShift = BiasShift(kShape.bias);
  static_assert(kShape.bias == 0 || kShape.bias << kBiasShift == 128);
  Ints sums[C][2];
  for (int c = 0; c < C; ++c) {
    dot[c][0] = dot[c][1] = kShape.bias == 0
                                ? _mm256_setzero_si256()
                                : _mm256_srai_epi32(_mm256_set1_epi32(in.Start<kShape>(c, block, part)), kBiasShift);
  }
  AddGroups<part * kSize, (part + 1) * kSize, Source, C>(source, in.q + block * kCodeBlock, in.blocks * kCodeBlock,
                                                         block, sums, dot);
}

inline void DecodeTrits(const uint8_t* vector, int count, uint8_t (*out)[kVectorBytes], int stride) {
  _mm_prefetch(reinterpret_cast<const char*>(vector + kPrefetchBytes), _MM_HINT_T0);
  for (int half = 0; half < 2; ++half) {
    __m256i v = Load256(vector + 32 * half);
    for (int digit = 0; digit < count; ++digit) {
      // 3 v / 256 is 0 below 86, 1 below 171, else 2; the next digit is in 3 v mod 256.
      const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
      const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(static_cast<char>(171))), v);
      const __m256i code = _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out[digit * stride] + 32 * half), code);
      v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    }
  }
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX2_AVX2_INTEGER_H_
