// Matrix tiles of the float types with NEON.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_float.h"

namespace stagecoach {
namespace {

template <TensorType kType>
inline void SplitPair(const uint8_t* pair, Floats* even, Floats* odd) {
  const uint32x4_t both = vreinterpretq_u32_u8(vld1q_u8(pair));
  if constexpr (kType == TensorType::kBF16) {
    *even = vreinterpretq_f32_u32(vshlq_n_u32(both, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000u)));
  } else {
    *even = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(both)));
    *odd = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(both, 16)));
  }
}

}  // namespace

// Up to 24 accumulators in 32 registers. No prefetching: these processors do it in hardware.
constexpr FloatTables kFloatTilesNeon = kDecodedTables</*kAhead=*/0, 1, 1, 1, 1>;

}  // namespace stagecoach
