// The sampling kernels for AVX-512.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  return _mm512_mask_loadu_ps(Set(beyond), FirstLanes(n - i), x + i);
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const Ints exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_maskz_cvtps_epi32(counted, _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), exponent)));
}

// The sums of pairs of 32-bit lanes, as 64 bits.
inline __m512i PairSums(__m512i x) {
  return _mm512_add_epi64(_mm512_and_si512(x, _mm512_set1_epi64(0xffffffff)), _mm512_srli_epi64(x, 32));
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  const __m512 best = _mm512_set1_ps(weighing.best), scale = _mm512_set1_ps(weighing.scale);
  const __m512 floor = _mm512_set1_ps(weighing.floor);
  constexpr int kVectors = kWeightBlock / kLanes;
  uint64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    __m512 values[kVectors];
    __mmask16 counted[kVectors], any = 0;
    if (__builtin_expect(begin + kWeightBlock <= n, 1)) {
      for (int j = 0; j < kVectors; ++j) {
        values[j] = _mm512_loadu_ps(x + begin + j * kLanes);
        counted[j] = _mm512_cmp_ps_mask(values[j], floor, _CMP_GE_OQ);
        any |= counted[j];
      }
    } else {
      for (int j = 0; j < kVectors; ++j) {
        const __mmask16 lanes = FirstLanes(n - begin - j * kLanes);
        values[j] = _mm512_maskz_loadu_ps(lanes, x + begin + j * kLanes);
        counted[j] = _mm512_mask_cmp_ps_mask(lanes, values[j], floor, _CMP_GE_OQ);
        any |= counted[j];
      }
    }
    uint64_t block = 0;
    if (any != 0) {
      __m512i sum = _mm512_setzero_si512();
      for (int j = 0; j < kVectors; j += 2) {
        // Two weights fit in 32 bits; more may not.
        sum = _mm512_add_epi64(sum, PairSums(_mm512_add_epi32(Weights(values[j], counted[j], best, scale),
                                                              Weights(values[j + 1], counted[j + 1], best, scale))));
      }
      block = static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
    }
    sums[begin / kWeightBlock] = block;
    total += block;
  }
  return total;
}

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  const __m512 lows = _mm512_set1_ps(low), highs = _mm512_set1_ps(high);
  const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t inside = 0, count_above = 0;
  for (int64_t begin = 0; begin < n; begin += 2 * kLanes) {
    __mmask16 in[2];
    for (int j = 0; j < 2; ++j) {
      const __mmask16 lanes = FirstLanes(n - begin - j * kLanes);
      const __m512 values = _mm512_maskz_loadu_ps(lanes, x + begin + j * kLanes);
      const __mmask16 over = _mm512_mask_cmp_ps_mask(lanes, values, highs, _CMP_GE_OQ);
      in[j] = _mm512_mask_cmp_ps_mask(static_cast<__mmask16>(lanes & ~over), values, lows, _CMP_GE_OQ);
      count_above += __builtin_popcount(over);
    }
    if ((in[0] | in[1]) == 0) continue;
    // No branch a vector, because it would be unpredictable: stores all lanes, those inside first. (The instruction
    // that compresses into memory is slow on some processors.)
    for (int j = 0; j < 2; ++j) {
      const __m512i found = _mm512_add_epi32(numbers, _mm512_set1_epi32(static_cast<int>(begin + j * kLanes)));
      _mm512_storeu_si512(indices + inside, _mm512_maskz_compress_epi32(in[j], found));
      inside += __builtin_popcount(in[j]);
    }
  }
  *above = count_above;
  return inside;
}

void Penalize(const uint8_t* seen, int64_t n, float penalty, float* x) {
  const __m512 penalties = _mm512_set1_ps(penalty);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m128i marks = _mm_maskz_loadu_epi8(FirstLanes(n - i), seen + i);
    const __mmask16 marked = _mm_test_epi8_mask(marks, marks);
    if (marked == 0) continue;
    const __m512 values = _mm512_maskz_loadu_ps(marked, x + i);
    const __mmask16 above = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 multiplied = _mm512_mul_ps(values, penalties);
    _mm512_mask_storeu_ps(x + i, marked, _mm512_mask_div_ps(multiplied, above, values, penalties));
  }
}

}  // namespace

const SamplingKernels kSamplingAvx512 = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
