// The sampling kernels for AVX2 with FMA.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int count = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), numbers);
  return Select(_mm256_castsi256_ps(mask), _mm256_maskload_ps(x + i, mask), Set(beyond));
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const Ints exponent = _mm256_slli_epi32(Bits(shifted), 23);
  return ToInts(_mm256_and_ps(counted, _mm256_castsi256_ps(_mm256_add_epi32(Bits(y), exponent))));
}

inline Longs AddWeights(Longs sums, Ints a, Ints b) {
  const __m256i both = _mm256_add_epi32(a, b);
  sums = _mm256_add_epi64(sums, _mm256_and_si256(both, _mm256_set1_epi64x(0xffffffff)));
  return _mm256_add_epi64(sums, _mm256_srli_epi64(both, 32));
}

inline uint64_t Total(Longs sums) {
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
}

inline int CountOf(Mask mask) { return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(mask))); }

// The lane numbers of every set of lanes, ascending.
struct LaneNumbers {
  uint8_t of[256][8];
};
constexpr LaneNumbers MakeLaneNumbers() {
  LaneNumbers numbers = {};
  for (int set = 0; set < 256; ++set) {
    int count = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if ((set >> lane & 1) != 0) numbers.of[set][count++] = static_cast<uint8_t>(lane);
    }
  }
  return numbers;
}
constexpr LaneNumbers kLaneNumbers = MakeLaneNumbers();

inline void StoreLanes(Mask mask, int32_t first, int32_t* out) {
  const uint8_t* const lanes = kLaneNumbers.of[_mm256_movemask_ps(mask)];
  const __m256i numbers = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(lanes)));
  StoreInts(out, _mm256_add_epi32(numbers, _mm256_set1_epi32(first)));
}

inline Mask Marked(const uint8_t* marks) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(marks));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_setzero_si256()));
}

}  // namespace

constexpr SamplingKernels kSamplingAvx2 = kVectorSampling;

}  // namespace stagecoach
