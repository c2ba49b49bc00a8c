// The tables of the AVX-512 sets, and the building blocks of their functions over single rows.

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

inline Ints LowBytes(Ints x) { return _mm512_srai_epi32(_mm512_slli_epi32(x, 24), 24); }
inline int32_t SumOfHalf(const Ints* half) { return _mm512_reduce_add_epi32(half[0]); }
inline void StoreBytes(int8_t* p, const Ints* values) {
  const __m128i low = _mm512_cvtepi32_epi8(values[0]), high = _mm512_cvtepi32_epi8(values[1]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_set_m128i(high, low));
}

// Each type's unit: with the dot instruction of bytes, or without.
constexpr MatmulFn* kMatmul = Matmul<kFloatTilesAvx512, IntegerMatmulAvx512>;
constexpr MatmulFn* kMatmulVnni = Matmul<kFloatTilesAvx512, IntegerMatmulAvx512Vnni>;

// Also with the dot instruction of BF16 pairs.
void MatmulBf16(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  if (weights.type != TensorType::kBF16) return kMatmulVnni(weights, in, columns, out, out_stride);
  MatmulByTiles(kBf16TilesAvx512Bf16, weights, in, columns, out, out_stride);
}

constexpr Kernels Avx512Table(InstructionSet set, bool bf16_dot, MatmulFn* matmul) {
  return TableOf(set, bf16_dot, matmul, Attend<kAttendTilesAvx512>, &kSamplingAvx512);
}

}  // namespace

constexpr Kernels kAvx512Kernels = Avx512Table(InstructionSet::kAvx512, false, kMatmul);
constexpr Kernels kAvx512VnniKernels = Avx512Table(InstructionSet::kAvx512Vnni, false, kMatmulVnni);
constexpr Kernels kAvx512Bf16Kernels = Avx512Table(InstructionSet::kAvx512Bf16, true, MatmulBf16);

}  // namespace stagecoach
