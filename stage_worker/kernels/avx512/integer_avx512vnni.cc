// The integer types with AVX-512 VNNI: one instruction multiplies 64 bytes by 64 bytes and adds them by fours.

#include "stage_worker/kernels/avx512/avx512_integer.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

struct VnniDot {
  template <int kMaxCode>
  static __m512i Add(__m512i sum, __m512i codes, __m512i x) {
    return _mm512_dpbusd_epi32(sum, codes, x);
  }
};

}  // namespace

void IntegerMatmulAvx512Vnni(const PanelSpan& weights, const Activations& in, int columns, float* out,
                             int64_t out_stride) {
  IntegerMatmul<VnniDot>(weights, in, columns, out, out_stride);
}

double PeakInt8Avx512Vnni(int64_t rounds) {
  constexpr int kChains = 12;
  __m512i sums[kChains] = {};
  const __m512i weights = _mm512_set1_epi8(3), inputs = _mm512_set1_epi8(-2);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, weights, inputs);
      asm volatile("" : "+v"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 128;
}

}  // namespace stagecoach
