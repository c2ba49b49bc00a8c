// Matrix products of the integer types with AVX-VNNI: one instruction multiplies 32 bytes by 32 bytes and adds them by
// fours, exactly, so codes keep the bias of their type.

#include "stage_worker/kernels/avx2/avx2_integer.h"

namespace stagecoach {
namespace {

constexpr Shape ShapeOf(const IntegerLayout& layout) { return {0, layout.halves, layout.minima, layout.bias}; }

template <Shape kShape, int g>
inline void AddGroup(__m256i w, __m256i /*magnitude*/, __m256i x, __m256i* /*sum16*/, __m256i* dot) {
  *dot = _mm256_dpbusd_avx_epi32(*dot, w, x);
}

}  // namespace

void IntegerMatmulAvxVnni(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  IntegerMatmul(weights, in, columns, out, out_stride);
}

double PeakInt8AvxVnni(int64_t rounds) {
  constexpr int kChains = 12;
  __m256i sums[kChains] = {};
  const __m256i weights = _mm256_set1_epi8(3), inputs = _mm256_set1_epi8(-2);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, weights, inputs);
      asm volatile("" : "+x"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 64;
}

}  // namespace stagecoach
