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

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_NEON_H_
