// The tables for Arm, and the building blocks of their functions over single rows.

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

inline Ints LowBytes(Ints x) { return vshrq_n_s32(vshlq_n_s32(x, 24), 24); }
inline int32_t SumOfHalf(const Ints* half) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(half[0], half[1]), vaddq_s32(half[2], half[3])));
}
inline void StoreBytes(int8_t* p, const Ints* values) {
  for (int half = 0; half < 2; ++half, values += 4) {
    const int16x8_t low = vcombine_s16(vmovn_s32(values[0]), vmovn_s32(values[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(values[2]), vmovn_s32(values[3]));
    vst1q_s8(p + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
}

constexpr Kernels NeonTable(InstructionSet set, MatmulFn* matmul) {
  return TableOf(set, /*bf16_dot=*/false, matmul, Attend<kAttendTilesNeon>, &kSamplingNeon);
}

}  // namespace

constexpr Kernels kNeonKernels = NeonTable(InstructionSet::kNeonDotprod, Matmul<kFloatTilesNeon, IntegerMatmulNeon>);
constexpr Kernels kNeonI8mmKernels =
    NeonTable(InstructionSet::kNeonI8mm, Matmul<kFloatTilesNeon, IntegerMatmulNeonI8mm>);

}  // namespace stagecoach
