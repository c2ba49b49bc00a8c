// Matrix products of the integer types with AVX2. The 8-bit product multiplies unsigned codes by signed activations and
// adds pairs into 16 bits, saturating: `steps` products of codes up to m stay exact while 2 * steps * m * 127 <= 32767,
// and only their sum is widened. Codes of 8 bits (Q8_0 and the IQ4 tables) do not even allow one: there |w| meets x
// with the sign of w, at most 2 * 128 * 127.

#include "stage_worker/kernels/avx2/avx2_integer.h"

namespace stagecoach {
namespace {

constexpr Shape ShapeOf(const IntegerLayout& layout) {
  using F = CodeFormat;
  if (layout.scales == ScaleFormat::kE8m0) return {4, false, false, 16};  // the table's values and 16: 4 to 28
  if (layout.tabled || layout.codes == F::kU8) return {0, layout.halves, layout.minima, 0, true};
  const int steps = layout.codes == F::kNibble2Bits ? 2 : layout.codes == F::kNibbleBit || layout.halves ? 4 : 8;
  return {steps, layout.halves, layout.minima, layout.bias};
}

template <Shape kShape, int g>
inline void AddGroup(__m256i w, __m256i magnitude, __m256i x, __m256i* sum16, __m256i* dot) {
  constexpr int kSteps = kShape.steps;
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kSteps == 0) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, ones));
  } else {
    const __m256i pairs = _mm256_maddubs_epi16(w, x);
    *sum16 = g % kSteps == 0 ? pairs : _mm256_add_epi16(*sum16, pairs);
    if (g % kSteps == kSteps - 1) *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(*sum16, ones));
  }
}

}  // namespace

void IntegerMatmulAvx2(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  IntegerMatmul(weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
