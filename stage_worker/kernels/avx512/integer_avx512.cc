// The integer types with AVX-512 F and BW alone: products of bytes to sums of 16 bits, these to sums of 32 bits.

#include "stage_worker/kernels/avx512/avx512_integer.h"

namespace stagecoach {
namespace {

struct WideningDot {
  // Exact: two products of a code up to 128 and an input up to 127 fit in 16 bits; larger codes are widened first.
  template <int kMaxCode>
  static __m512i Add(__m512i sum, __m512i codes, __m512i x) {
    if constexpr (kMaxCode <= 128) {
      const __m512i pairs = _mm512_maddubs_epi16(codes, x);
      return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
    const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(0xff)), odd = _mm512_srli_epi16(codes, 8);
    const __m512i x_even = _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), x_odd = _mm512_srai_epi16(x, 8);
    return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(even, x_even), _mm512_madd_epi16(odd, x_odd)));
  }
};

}  // namespace

void IntegerMatmulAvx512(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  IntegerMatmul<WideningDot>(weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
