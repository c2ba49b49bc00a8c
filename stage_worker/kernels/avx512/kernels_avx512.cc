// The tables of the AVX-512 sets, and the building blocks of their functions over single rows.

#include <cfloat>

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_rows.h"

namespace stagecoach {
namespace {

inline Doubles ToDoubles(const float* x) { return _mm512_cvtps_pd(_mm256_loadu_ps(x)); }
inline Doubles Low(Floats x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
inline Doubles High(Floats x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
inline Doubles AddSquare(Doubles sum, Doubles x) { return _mm512_fmadd_pd(x, x, sum); }
inline void StoreDoubles(double* p, Doubles x) { _mm512_storeu_pd(p, x); }

inline void RotatePairs(float* head, const float* cos, const float* sin) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const Floats pairs = Load(head);
  const Floats c = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(cos)));
  const Floats s = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(sin)));
  Store(head, _mm512_fmaddsub_ps(pairs, c, _mm512_permute_ps(pairs, 0xb1) * s));  // even lanes subtract, odd lanes add
}

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const __m512 low = _mm512_loadu_ps(x + b * kActivationGroup);
    const __m512 high = _mm512_loadu_ps(x + b * kActivationGroup + kLanes);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const float scale = largest / 127.0f < FLT_MIN ? 0.0f : largest / 127.0f;
    const __m512 divisor = _mm512_set1_ps(scale);
    const __mmask16 nonzero = scale == 0.0f ? 0 : 0xffff;
    const __m512i q_low = _mm512_maskz_cvtps_epi32(nonzero, _mm512_div_ps(low, divisor));
    const __m512i q_high = _mm512_maskz_cvtps_epi32(nonzero, _mm512_div_ps(high, divisor));
    int8_t* out = q + b * kActivationGroup;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(q_low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kLanes), _mm512_cvtepi32_epi8(q_high));
    scales[b] = scale;
    half_starts[2 * b] = StartOf(_mm512_reduce_add_epi32(q_low));
    half_starts[2 * b + 1] = StartOf(_mm512_reduce_add_epi32(q_high));
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
  }
}

// Each type's unit: with the dot instruction of bytes, or without.
constexpr MatmulFn* kMatmul = Matmul<FloatMatmulAvx512, IntegerMatmulAvx512>;
constexpr MatmulFn* kMatmulVnni = Matmul<FloatMatmulAvx512, IntegerMatmulAvx512Vnni>;

// Also with the dot instruction of BF16 pairs.
void MatmulBf16(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  (weights.type == TensorType::kBF16 ? Bf16MatmulAvx512Bf16 : kMatmulVnni)(weights, in, columns, out, out_stride);
}

constexpr Kernels Avx512Table(InstructionSet set, bool bf16_dot, MatmulFn* matmul) {
  return TableOf(set, bf16_dot, RoundRowAvx512, matmul, StoreKAvx512, StoreVAvx512, AttendAvx512, &kSamplingAvx512);
}

}  // namespace

constexpr Kernels kAvx512Kernels = Avx512Table(InstructionSet::kAvx512, false, kMatmul);
constexpr Kernels kAvx512VnniKernels = Avx512Table(InstructionSet::kAvx512Vnni, false, kMatmulVnni);
constexpr Kernels kAvx512Bf16Kernels = Avx512Table(InstructionSet::kAvx512Bf16, true, MatmulBf16);

}  // namespace stagecoach
