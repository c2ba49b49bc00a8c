// The sampling kernels for Arm.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  float values[kLanes];
  for (int j = 0; j < kLanes; ++j) values[j] = i + j < n ? x[i + j] : beyond;
  return Load(values);
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
  return vandq_s32(vreinterpretq_s32_u32(counted), ToInts(vreinterpretq_f32_u32(bits)));
}

inline Longs AddWeights(Longs sums, Ints a, Ints b) {
  return vpadalq_u32(sums, vreinterpretq_u32_s32(vaddq_s32(a, b)));
}
inline uint64_t Total(Longs sums) { return vaddvq_u64(sums); }
inline int CountOf(Mask mask) { return static_cast<int>(vaddvq_u32(vshrq_n_u32(mask, 31))); }

// Writes every lane; the next one overwrites those that are not inside.
inline void StoreLanes(Mask mask, int32_t first, int32_t* out) {
  uint32_t inside[kLanes];
  vst1q_u32(inside, vshrq_n_u32(mask, 31));
  for (int j = 0; j < kLanes; ++j) {
    *out = first + j;
    out += inside[j];
  }
}

inline Mask Marked(const uint8_t* marks) {
  return vcgtq_u32(vmovl_u16(vget_low_u16(vmovl_u8(LoadFourBytes(marks)))), vdupq_n_u32(0));
}

}  // namespace

constexpr SamplingKernels kSamplingNeon = kVectorSampling;

}  // namespace stagecoach
