#ifndef STAGECOACH_STAGE_WORKER_KERNELS_NEON_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_NEON_H_

// What the *_neon.cc and *_neoni8mm.cc units share; included by nothing else. The small functions are static: each unit
// keeps its own copy.

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

void FloatMatmulNeon(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void IntegerMatmulNeon(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void IntegerMatmulNeonI8mm(const PanelSpan& weights, const Activations& in, int columns, float* out,
                           int64_t out_stride);
void AttendNeon(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                const int32_t* limits, int columns, AttentionState state);

// Loads of bytes: the memory need not be aligned for its elements.
[[maybe_unused]] static inline float32x4_t LoadFloats(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
[[maybe_unused]] static inline float32x4_t LoadHalves(const uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
[[maybe_unused]] static inline float32x4_t LoadBf16(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
[[maybe_unused]] static inline uint8x8_t LoadFourBytes(const uint8_t* p) {
  uint32_t four;
  std::memcpy(&four, p, sizeof(four));
  return vcreate_u8(four);
}

// 2^n for n in [-126, 127].
[[maybe_unused]] static inline float32x4_t PowerOfTwo(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

// FixedExp in 4 lanes.
[[maybe_unused]] static inline float32x4_t Exp(float32x4_t x) {
  x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-104.0f)), vdupq_n_f32(89.0f));  // a NaN stays one
  const float32x4_t round = vdupq_n_f32(12582912.0f);
  const float32x4_t shifted = vfmaq_f32(round, x, vdupq_n_f32(1.44269504088896341f));
  const float32x4_t n = vsubq_f32(shifted, round);
  const int32x4_t exponent = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(round));
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0.693359375f));
  r = vfmaq_f32(r, n, vdupq_n_f32(2.12194440e-4f));
  float32x4_t y = vdupq_n_f32(1.9875691500e-4f);
  y = vfmaq_f32(vdupq_n_f32(1.3981999507e-3f), y, r);
  y = vfmaq_f32(vdupq_n_f32(8.3334519073e-3f), y, r);
  y = vfmaq_f32(vdupq_n_f32(4.1665795894e-2f), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.6666665459e-1f), y, r);
  y = vfmaq_f32(vdupq_n_f32(5.0000001201e-1f), y, r);
  y = vaddq_f32(vfmaq_f32(r, y, vmulq_f32(r, r)), vdupq_n_f32(1.0f));
  const int32x4_t first = vshrq_n_s32(exponent, 1);
  return vmulq_f32(vmulq_f32(y, PowerOfTwo(first)), PowerOfTwo(vsubq_s32(exponent, first)));
}

// cap * FixedTanh(x / cap) in 4 lanes. Large arguments are rare: where a vector has none, their formula is left out; a
// lane's bits do not depend on that.
[[maybe_unused]] static inline float32x4_t SoftCap(float32x4_t x, float32x4_t cap) {
  x = vdivq_f32(x, cap);
  const float32x4_t magnitude = vabsq_f32(x), z = vmulq_f32(magnitude, magnitude);
  float32x4_t y = vdupq_n_f32(-5.70498872745e-3f);
  y = vfmaq_f32(vdupq_n_f32(2.06390887954e-2f), y, z);
  y = vfmaq_f32(vdupq_n_f32(-5.37397155531e-2f), y, z);
  y = vfmaq_f32(vdupq_n_f32(1.33314422036e-1f), y, z);
  y = vfmaq_f32(vdupq_n_f32(-3.33332819422e-1f), y, z);
  y = vfmaq_f32(magnitude, vmulq_f32(y, z), magnitude);
  const uint32x4_t small = vcltq_f32(magnitude, vdupq_n_f32(0.625f));  // not a NaN
  if (vminvq_u32(small) == 0) {
    const float32x4_t one = vdupq_n_f32(1.0f);
    const float32x4_t divisor = vaddq_f32(Exp(vaddq_f32(magnitude, magnitude)), one);
    y = vbslq_f32(small, y, vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), divisor)));
  }
  return vmulq_f32(cap, vbslq_f32(vdupq_n_u32(0x80000000u), x, y));  // the sign of x
}

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_NEON_H_
