// The sampling kernels for AVX-512.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  return _mm512_mask_loadu_ps(Set(beyond), FirstLanes(n - i), x + i);
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const Ints exponent = _mm512_slli_epi32(Bits(shifted), 23);
  return _mm512_maskz_cvtps_epi32(counted, _mm512_castsi512_ps(_mm512_add_epi32(Bits(y), exponent)));
}

inline Longs AddWeights(Longs sums, Ints a, Ints b) {
  const __m512i both = _mm512_add_epi32(a, b);
  sums = _mm512_add_epi64(sums, _mm512_and_si512(both, _mm512_set1_epi64(0xffffffff)));
  return _mm512_add_epi64(sums, _mm512_srli_epi64(both, 32));
}

inline uint64_t Total(Longs sums) { return static_cast<uint64_t>(_mm512_reduce_add_epi64(sums)); }

inline int CountOf(Mask mask) { return __builtin_popcount(mask); }

inline void StoreLanes(Mask mask, int32_t first, int32_t* out) {
  const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // (The instruction that compresses into memory is slow on some processors.)
  StoreInts(out, _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(numbers, _mm512_set1_epi32(first))));
}

inline Mask Marked(const uint8_t* marks) { return _mm_test_epi8_mask(Load128(marks), Load128(marks)); }

}  // namespace

constexpr SamplingKernels kSamplingAvx512 = kVectorSampling;

}  // namespace stagecoach
