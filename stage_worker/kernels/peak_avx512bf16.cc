// The bf16 peak of AVX-512 BF16.

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "stage_worker/kernels/peak_loops.h"

namespace stagecoach {

double PeakBf16Avx512Bf16(int64_t rounds) {
  constexpr int kChains = 24;  // its latency is longer than that of the int8 dot
  __m512 sums[kChains] = {};
  const __m512i weights = _mm512_set1_epi16(0x3f80), inputs = weights;  // 1
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)inputs);
      asm volatile("" : "+v"(sum));
    }
  }
  return static_cast<double>(rounds) * kChains * 64;
}

}  // namespace stagecoach
