#ifndef STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_INTEGER_H_

// Matrix products of the integer types with NEON's signed dot products: the body of integer_neon.cc (sdot: four lanes
// by four columns) and of integer_neoni8mm.cc (smmla: two lanes by two activation rows by eight columns), each with a
// copy of its own.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

using Bytes = uint8x16_t;

// These processors prefetch in hardware.
struct Fetch {
  Fetch(const PanelSpan&, const uint8_t*, const PanelSections&) {}
  void Advance(int64_t) {}
  template <int kBytes>
  void Block(int64_t) const {}
};

}  // namespace
}  // namespace stagecoach

#include "stage_worker/kernels/vector_integer.h"

namespace stagecoach {
namespace {

// Codes of 8 bits and tables become signed when they are read.
constexpr Shape ShapeOf(const IntegerLayout& layout) {
  return {0, layout.halves, layout.minima, layout.bias == 128 ? 0 : layout.bias};
}

constexpr int PackedColumns(const IntegerLayout&) { return kTileColumns; }

inline Bytes LoadBytes(const uint8_t* p) { return vld1q_u8(p); }
inline void StoreBytes(uint8_t* p, Bytes x) { vst1q_u8(p, x); }
template <int kLeft>
inline Bytes Shift(Bytes x) {
  if constexpr (kLeft > 0) return vshlq_n_u8(x, kLeft);
  if constexpr (kLeft < 0) return vshrq_n_u8(x, -kLeft);
  return x;
}
inline Bytes KeepBits(Bytes x, int bits) { return vandq_u8(x, vdupq_n_u8(static_cast<uint8_t>(bits))); }
inline Bytes BitOr(Bytes a, Bytes b) { return vorrq_u8(a, b); }
inline Bytes Minus(Bytes x, int bias) { return vsubq_u8(x, vdupq_n_u8(static_cast<uint8_t>(bias))); }
inline Bytes Magnitudes(Bytes x) { return vreinterpretq_u8_s8(vabsq_s8(vreinterpretq_s8_u8(x))); }
inline Bytes LoadTable(const uint8_t* table) { return vld1q_u8(table); }
inline Bytes LookUp(Bytes table, Bytes codes) { return vqtbl1q_u8(table, codes); }

inline Floats LoadHalfFloats(const uint8_t* p) { return LoadHalves(p); }
template <bool kSigned>
inline Ints LoadSmall(const uint8_t* p) {
  const uint8x8_t bytes = LoadFourBytes(p);
  if constexpr (kSigned) return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}
inline Ints Nibbles(Ints bytes, bool high) { return high ? vshrq_n_s32(bytes, 4) : vandq_s32(bytes, vdupq_n_s32(15)); }
inline Floats PowersOfTwo(Ints e) {
  const Ints normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
  const Ints subnormal = vshlq_s32(vdupq_n_s32(0x00200000), e);
  return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), subnormal, normal));
}
inline Floats ToFloats(Ints x) { return vcvtq_f32_s32(x); }
inline Floats ActivationSum(int32_t start, float scale) { return Set(static_cast<float>(start / -128) * scale); }

// Adds the products of the groups [g, end) of a block to dot [columns][quarters]; 16 activations are loaded at a time.
template <int g, int end, class Source, int C>
inline void AddDots(const Source& source, const int8_t* q, int64_t cols, int64_t block, int8x16_t* x,
                    int32x4_t (*dot)[kVectors]) {
  if constexpr (g % 4 == 0) {
    for (int c = 0; c < C; ++c) x[c] = vld1q_s8(q + c * cols + 4 * g);
  }
  for (int r = 0; r < kVectors; ++r) {
    const int8x16_t w = vreinterpretq_s8_u8(source.template Codes<g>(block, r));
    for (int c = 0; c < C; ++c) dot[c][r] = vdotq_laneq_s32(dot[c][r], w, x[c], g % 4);
  }
  if constexpr (g + 1 < end) AddDots<g + 1, end, Source, C>(source, q, cols, block, x, dot);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The same by matrices: two groups make the eight columns of two lanes, two activation rows the other factor. sums:
// [pair of columns][quarter][lanes 0 and 1, lanes 2 and 3], each {lane a x row 0, a x row 1, b x row 0, b x row 1}.
template <int g, int end, class Source, int C>
inline void AddMatrices(const Source& source, const int8_t* q, int64_t cols, int64_t block,
                        int32x4_t (*sums)[kVectors][2]) {
  constexpr int kPairs = (C + 1) / 2;
  int8x16_t x[kPairs];
  for (int pair = 0; pair < kPairs; ++pair) {
    const int second = 2 * pair + 1 < C ? 2 * pair + 1 : 2 * pair;
    x[pair] = vcombine_s8(vld1_s8(q + 2 * pair * cols + 4 * g), vld1_s8(q + second * cols + 4 * g));
  }
  for (int r = 0; r < kVectors; ++r) {
    const int32x4_t first = vreinterpretq_s32_u8(source.template Codes<g>(block, r));
    const int32x4_t next = vreinterpretq_s32_u8(source.template Codes<g + 1>(block, r));
    const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(first, next));
    const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(first, next));
    for (int pair = 0; pair < kPairs; ++pair) {
      sums[pair][r][0] = vmmlaq_s32(sums[pair][r][0], low, x[pair]);
      sums[pair][r][1] = vmmlaq_s32(sums[pair][r][1], high, x[pair]);
    }
  }
  if constexpr (g + 2 < end) AddMatrices<g + 2, end, Source, C>(source, q, cols, block, sums);
}
#endif

// The bias's part of the products of the codes.
template <int part, class Source, int C>
inline void AddBias(const Columns& in, int64_t block, Ints (*dot)[kVectors]) {
  constexpr Shape kShape = Source::kShape;
  if constexpr (kShape.bias != 0) {
    for (int c = 0; c < C; ++c) {
      const Ints start = vdupq_n_s32(in.Start<kShape>(c, block, part) / (128 / kShape.bias));
      for (int r = 0; r < kVectors; ++r) dot[c][r] = vaddq_s32(dot[c][r], start);
    }
  }
}

template <int part, class Source, int C>
inline void Products(const Source& source, const Columns& in, int64_t block, Ints (*dot)[kVectors]) {
  constexpr int kSize = Source::kShape.halves ? kGroups / 2 : kGroups;
  constexpr int kBegin = part * kSize, kEnd = kBegin + kSize;
  const int8_t* const q = in.q + block * kCodeBlock;
  const int64_t cols = in.blocks * kCodeBlock;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (C > 1) {
    int32x4_t sums[(C + 1) / 2][kVectors][2];
    for (auto& pair : sums) {
      for (auto& quarter : pair) quarter[0] = quarter[1] = vdupq_n_s32(0);
    }
    AddMatrices<kBegin, kEnd, Source, C>(source, q, cols, block, sums);
    for (int c = 0; c < C; ++c) {
      for (int r = 0; r < kVectors; ++r) {
        const int32x4_t low = sums[c / 2][r][0], high = sums[c / 2][r][1];
        dot[c][r] = c % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high);
      }
    }
    AddBias<part, Source, C>(in, block, dot);
    return;
  }
#endif
  int8x16_t x[C];
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kVectors; ++r) dot[c][r] = vdupq_n_s32(0);
  }
  AddDots<kBegin, kEnd, Source, C>(source, q, cols, block, x, dot);
  AddBias<part, Source, C>(in, block, dot);
}

inline void DecodeTrits(const uint8_t* vector, int count, uint8_t (*out)[kVectorBytes], int stride) {
  for (int r = 0; r < kVectors; ++r) {
    uint8x16_t v = vld1q_u8(vector + 16 * r);
    for (int digit = 0; digit < count; ++digit) {
      // 3 v / 256 is 0 below 86, 1 below 171, else 2; the next digit is in 3 v mod 256.
      const uint8x16_t minus = vaddq_u8(vcgeq_u8(v, vdupq_n_u8(86)), vcgeq_u8(v, vdupq_n_u8(171)));
      StoreBytes(out[digit * stride] + 16 * r, vsubq_u8(vdupq_n_u8(0), minus));
      v = vaddq_u8(v, vaddq_u8(v, v));
    }
  }
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_INTEGER_H_
