// The tables for AVX2 with FMA and F16C, alone and with the dot instruction of bytes, and the building blocks of its
// functions over single rows.

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

inline Ints LowBytes(Ints x) { return _mm256_srai_epi32(_mm256_slli_epi32(x, 24), 24); }

inline int32_t SumOfHalf(const Ints* half) {
  const __m256i sum = _mm256_add_epi32(half[0], half[1]);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

inline void StoreBytes(int8_t* p, const Ints* values) {
  // The packs work within 128 bits; the permutation puts the fours back in order.
  const __m256i low = _mm256_packs_epi32(values[0], values[1]), high = _mm256_packs_epi32(values[2], values[3]);
  StoreInts(p, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

constexpr Kernels Avx2Table(InstructionSet set, MatmulFn* matmul) {
  return TableOf(set, /*bf16_dot=*/false, matmul, Attend<kAttendTilesAvx2>, &kSamplingAvx2);
}

}  // namespace

constexpr Kernels kAvx2Kernels = Avx2Table(InstructionSet::kAvx2, Matmul<kFloatTilesAvx2, IntegerMatmulAvx2>);
constexpr Kernels kAvxVnniKernels = Avx2Table(InstructionSet::kAvxVnni, Matmul<kFloatTilesAvx2, IntegerMatmulAvxVnni>);

}  // namespace stagecoach
