// Matrix tiles of the float types with AVX2 and FMA.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_float.h"

namespace stagecoach {
namespace {

template <TensorType kType>
inline void SplitPair(const uint8_t* pair, Floats* even, Floats* odd) {
  const __m256i both = Load256(pair);
  if constexpr (kType == TensorType::kBF16) {
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  } else {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12,
                                           13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(both, order), 0xd8);
    *even = _mm256_cvtph_ps(_mm256_castsi256_si128(sorted));
    *odd = _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1));
  }
}

}  // namespace

// Up to 12 accumulators and what they need in 16 registers.
constexpr FloatTables kFloatTilesAvx2 = kDecodedTables<kPrefetchBytes, 2, 2, 1, 1>;

}  // namespace stagecoach
