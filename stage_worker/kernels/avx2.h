#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX2_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX2_H_

// What the *_avx2.cc units share; included by nothing else. The small functions are static: each unit keeps its own
// copy.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

void FloatMatmulAvx2(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
void IntegerMatmulAvx2(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);

constexpr int64_t kPrefetchBytes = 8192;  // how far ahead of the weights in use memory is asked for

[[maybe_unused]] static inline __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
[[maybe_unused]] static inline __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
[[maybe_unused]] static inline __m256 LoadFloats(const uint8_t* p) { return _mm256_castsi256_ps(Load256(p)); }

// The largest of 8 lanes; for numbers the order does not matter.
[[maybe_unused]] static inline float ReduceMax(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// 2^n for n in [-126, 127].
[[maybe_unused]] static inline __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// FixedExp in 8 lanes.
[[maybe_unused]] static inline __m256 Exp(__m256 x) {
  // The constant comes first: for a NaN the second operand is the result.
  x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);
  x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
  const __m256 round = _mm256_set1_ps(12582912.0f);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(1.44269504088896341f), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  const __m256i exponent = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
  __m256 y = _mm256_set1_ps(1.9875691500e-4f);
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.3981999507e-3f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(8.3334519073e-3f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(4.1665795894e-2f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.6666665459e-1f));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(5.0000001201e-1f));
  y = _mm256_add_ps(_mm256_fmadd_ps(y, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i first = _mm256_srai_epi32(exponent, 1);
  return _mm256_mul_ps(_mm256_mul_ps(y, PowerOfTwo(first)), PowerOfTwo(_mm256_sub_epi32(exponent, first)));
}

// cap * FixedTanh(x / cap) in 8 lanes. Large arguments are rare: where a vector has none, their formula is left out; a
// lane's bits do not depend on that.
[[maybe_unused]] static inline __m256 SoftCap(__m256 x, __m256 cap) {
  x = _mm256_div_ps(x, cap);
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  const __m256 sign = _mm256_and_ps(x, sign_bit), magnitude = _mm256_andnot_ps(sign_bit, x);
  const __m256 z = _mm256_mul_ps(magnitude, magnitude);
  __m256 y = _mm256_set1_ps(-5.70498872745e-3f);
  y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(2.06390887954e-2f));
  y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(-5.37397155531e-2f));
  y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(1.33314422036e-1f));
  y = _mm256_fmadd_ps(y, z, _mm256_set1_ps(-3.33332819422e-1f));
  y = _mm256_fmadd_ps(_mm256_mul_ps(y, z), magnitude, magnitude);
  const __m256 large = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0.625f), _CMP_NLT_UQ);  // a NaN, too
  if (_mm256_movemask_ps(large) != 0) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 divisor = _mm256_add_ps(Exp(_mm256_add_ps(magnitude, magnitude)), one);
    y = _mm256_blendv_ps(y, _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), divisor)), large);
  }
  return _mm256_mul_ps(cap, _mm256_or_ps(y, sign));
}

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX2_H_
