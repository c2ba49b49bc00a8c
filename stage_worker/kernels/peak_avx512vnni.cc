// The int8 peak of AVX-512 VNNI.

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "stage_worker/kernels/peak_loops.h"

namespace stagecoach {

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
