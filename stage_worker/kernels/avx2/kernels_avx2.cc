// The table for AVX2 with FMA and F16C, and the building blocks of its functions over single rows.

#include <cfloat>

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_rows.h"

namespace stagecoach {
namespace {

inline Doubles ToDoubles(const float* x) { return _mm256_cvtps_pd(_mm_loadu_ps(x)); }
inline Doubles Low(Floats x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline Doubles High(Floats x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
inline Doubles AddSquare(Doubles sum, Doubles x) { return _mm256_fmadd_pd(x, x, sum); }
inline void StoreDoubles(double* p, Doubles x) { _mm256_storeu_pd(p, x); }

inline void RotatePairs(float* head, const float* cos, const float* sin) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  const Floats pairs = Load(head);
  const Floats c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos)), twice);
  const Floats s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin)), twice);
  Store(head, _mm256_fmaddsub_ps(pairs, c, _mm256_permute_ps(pairs, 0xb1) * s));  // even lanes subtract, odd lanes add
}

int32_t ReduceAdd(__m256i sum) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const float* in = x + b * kActivationGroup;
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i)
      largest = _mm256_max_ps(_mm256_and_ps(_mm256_loadu_ps(in + i * kLanes), no_sign), largest);
    const float quotient = ReduceMax(largest) / 127.0f;
    const float scale = quotient < FLT_MIN ? 0.0f : quotient;
    __m256i values[4];
    for (int i = 0; i < 4; ++i) {
      values[i] = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(in + i * kLanes), _mm256_set1_ps(scale)));
      if (scale == 0.0f) values[i] = _mm256_setzero_si256();
    }
    // The packs work within 128 bits; the permutation puts the fours back in order.
    const __m256i low = _mm256_packs_epi32(values[0], values[1]);
    const __m256i high = _mm256_packs_epi32(values[2], values[3]);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + b * kActivationGroup), bytes);
    half_starts[2 * b] = StartOf(ReduceAdd(_mm256_add_epi32(values[0], values[1])));
    half_starts[2 * b + 1] = StartOf(ReduceAdd(_mm256_add_epi32(values[2], values[3])));
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
    scales[b] = scale;
  }
}

}  // namespace

constexpr Kernels kAvx2Kernels =
    TableOf(InstructionSet::kAvx2, /*bf16_dot=*/false, RoundRow, Matmul<FloatMatmulAvx2, IntegerMatmulAvx2>, StoreKAvx2,
            StoreVAvx2, AttendAvx2, &kSamplingAvx2);

}  // namespace stagecoach
