#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_H_

// What the *_avx512*.cc units share; included by nothing else. The small functions are static: each unit keeps its
// own copy.

// g++ 12 finds the deliberately undefined registers of its own header uninitialised.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// The matmul of the float types, of BF16 by the dot instruction of pairs, and of the integer types with and without the
// dot instruction of bytes.
void FloatMatmulAvx512(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void Bf16MatmulAvx512Bf16(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void IntegerMatmulAvx512(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void IntegerMatmulAvx512Vnni(const PanelSpan& weights, const Activations& in, int columns, float* out,
                             int64_t out_stride);
void RoundRowAvx512(const float* x, int64_t cols, uint16_t* out);

[[maybe_unused]] static inline __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// Four bytes, in every lane.
[[maybe_unused]] static inline __m512i Broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}

// FixedExp in 16 lanes. Scaling by 2^n rounds once, as the two factors of the scalar form do.
[[maybe_unused]] static inline __m512 Exp(__m512 x) {
  // The constant comes first: for a NaN the second operand is the result.
  x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);
  x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
  const __m512 round = _mm512_set1_ps(12582912.0f);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504088896341f), round), round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 y = _mm512_set1_ps(1.9875691500e-4f);
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.3981999507e-3f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(8.3334519073e-3f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(4.1665795894e-2f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.6666665459e-1f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(5.0000001201e-1f));
  y = _mm512_add_ps(_mm512_fmadd_ps(y, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, n);
}

// cap * FixedTanh(x / cap) in 16 lanes. Large arguments are rare: where a vector has none, their formula is left out; a
// lane's bits do not depend on that.
[[maybe_unused]] static inline __m512 SoftCap(__m512 x, __m512 cap) {
  x = _mm512_div_ps(x, cap);
  const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f)), magnitude = _mm512_abs_ps(x);
  const __m512 z = _mm512_mul_ps(magnitude, magnitude);
  __m512 y = _mm512_set1_ps(-5.70498872745e-3f);
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(2.06390887954e-2f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(-5.37397155531e-2f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(1.33314422036e-1f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(-3.33332819422e-1f));
  y = _mm512_fmadd_ps(_mm512_mul_ps(y, z), magnitude, magnitude);
  const __mmask16 large = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.625f), _CMP_NLT_UQ);  // a NaN, too
  if (large != 0) {
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 divisor = _mm512_add_ps(Exp(_mm512_add_ps(magnitude, magnitude)), one);
    y = _mm512_mask_sub_ps(y, large, one, _mm512_div_ps(_mm512_set1_ps(2.0f), divisor));
  }
  return _mm512_mul_ps(cap, _mm512_or_ps(y, sign));
}

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_H_
