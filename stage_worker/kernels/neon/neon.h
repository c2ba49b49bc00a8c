#ifndef STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_H_

// What the *_neon.cc and *_neoni8mm.cc units share; included by nothing else. The functions are in an unnamed
// namespace: each unit keeps its own copy.

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

MatmulFn IntegerMatmulNeon, IntegerMatmulNeonI8mm;

namespace {

// Loads and stores of bytes: the memory need not be aligned for its elements.
inline uint8x8_t LoadFourBytes(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof(four));
  return vcreate_u8(four);
}

// What vector_math.h says.
using Floats = float32x4_t;
using Doubles = float64x2_t;  // half as many
using Ints = int32x4_t;
using Longs = uint64x2_t;  // half as many
using Mask = uint32x4_t;
constexpr int kLanes = 4;

inline Floats Set(float x) { return vdupq_n_f32(x); }
inline Floats Load(const void* p) { return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
inline void Store(void* p, Floats x) { vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_f32(x)); }
inline void StoreInts(void* p, Ints x) { vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_s32(x)); }
inline Floats Fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats FmaMinus(Floats a, Floats b, Floats c) { return vfmaq_f32(vnegq_f32(c), a, b); }
inline Floats Max(Floats a, Floats b) { return vmaxq_f32(a, b); }
inline Floats Min(Floats a, Floats b) { return vminq_f32(a, b); }
inline Floats MaxNumber(Floats a, Floats number) { return vmaxnmq_f32(a, number); }
inline Floats Magnitude(Floats x) { return vabsq_f32(x); }
inline Floats WithSignOf(Floats x, Floats magnitude) { return vbslq_f32(vdupq_n_u32(0x80000000u), x, magnitude); }
inline Ints ToInts(Floats x) { return vcvtnq_s32_f32(x); }
inline Ints Bits(Floats x) { return vreinterpretq_s32_f32(x); }

inline Floats LoadHalves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline void StoreHalves(uint8_t* p, Floats x) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(x))); }
inline Floats LoadBf16(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
inline void StoreBf16(uint8_t* p, Floats x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  vst1_u8(p, vreinterpret_u8_u16(vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16)));
}
inline Floats LoadCodes(const uint8_t* p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(LoadFourBytes(p))))));
}

inline Mask NotBelow(Floats a, Floats b) { return vmvnq_u32(vcltq_f32(a, b)); }
inline Mask AtLeast(Floats a, Floats b) { return vcgeq_f32(a, b); }
inline Mask Over(Floats a, Floats b) { return vcgtq_f32(a, b); }
inline Mask Either(Mask a, Mask b) { return vorrq_u32(a, b); }
inline Mask Without(Mask a, Mask b) { return vbicq_u32(a, b); }
inline bool Any(Mask mask) { return vmaxvq_u32(mask) != 0; }
inline Floats Select(Mask mask, Floats x, Floats otherwise) { return vbslq_f32(mask, x, otherwise); }
inline float ReduceMax(Floats x) { return vmaxvq_f32(x); }

inline Floats TimesPowerOfTwo(Floats y, Floats /*n*/, Floats shifted) {
  const auto power = [](Ints n) {  // for n in [-126, 127]
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
  };
  const Ints exponent = vsubq_s32(Bits(shifted), Bits(Set(kRoundFloat)));
  const Ints first = vshrq_n_s32(exponent, 1);
  return y * power(first) * power(vsubq_s32(exponent, first));
}

}  // namespace
}  // namespace stagecoach

#include "stage_worker/kernels/vector_math.h"

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_NEON_NEON_H_
