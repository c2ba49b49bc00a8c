// The tables for Arm, and the building blocks of their functions over single rows.

#include <cfloat>

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_rows.h"

namespace stagecoach {
namespace {

inline Doubles ToDoubles(const float* x) { return vcvt_f64_f32(vld1_f32(x)); }
inline Doubles Low(Floats x) { return vcvt_f64_f32(vget_low_f32(x)); }
inline Doubles High(Floats x) { return vcvt_high_f64_f32(x); }
inline Doubles AddSquare(Doubles sum, Doubles x) { return vfmaq_f64(sum, x, x); }
inline void StoreDoubles(double* p, Doubles x) { vst1q_f64(p, x); }

inline void RotatePairs(float* head, const float* cos, const float* sin) {
  float32x4x2_t pairs = vld2q_f32(head);
  const Floats a = pairs.val[0], b = pairs.val[1], c = Load(cos), s = Load(sin);
  pairs.val[0] = FmaMinus(a, c, b * s);
  pairs.val[1] = Fma(b, c, a * s);
  vst2q_f32(head, pairs);
}

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  constexpr int kVectors = kActivationGroup / kLanes;
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const float* in = x + b * kActivationGroup;
    float32x4_t largest = vdupq_n_f32(0.0f);
    for (int i = 0; i < kVectors; ++i) largest = vmaxq_f32(vabsq_f32(vld1q_f32(in + i * kLanes)), largest);
    const float quotient = vmaxvq_f32(largest) / 127.0f;
    const float scale = quotient < FLT_MIN ? 0.0f : quotient;
    int32x4_t values[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      values[i] = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(in + i * kLanes), vdupq_n_f32(scale)));
      if (scale == 0.0f) values[i] = vdupq_n_s32(0);
    }
    for (int half = 0; half < 2; ++half) {
      const int32x4_t* four = values + half * kVectors / 2;
      const int16x8_t low = vcombine_s16(vmovn_s32(four[0]), vmovn_s32(four[1]));
      const int16x8_t high = vcombine_s16(vmovn_s32(four[2]), vmovn_s32(four[3]));
      vst1q_s8(q + b * kActivationGroup + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      const int32x4_t sum = vaddq_s32(vaddq_s32(four[0], four[1]), vaddq_s32(four[2], four[3]));
      half_starts[2 * b + half] = StartOf(vaddvq_s32(sum));
    }
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
    scales[b] = scale;
  }
}

constexpr Kernels NeonTable(InstructionSet set, MatmulFn* matmul) {
  return TableOf(set, /*bf16_dot=*/false, RoundRow, matmul, StoreKScalar, StoreVScalar, AttendNeon, &kSamplingNeon);
}

}  // namespace

constexpr Kernels kNeonKernels = NeonTable(InstructionSet::kNeonDotprod, Matmul<FloatMatmulNeon, IntegerMatmulNeon>);
constexpr Kernels kNeonI8mmKernels =
    NeonTable(InstructionSet::kNeonI8mm, Matmul<FloatMatmulNeon, IntegerMatmulNeonI8mm>);

}  // namespace stagecoach
