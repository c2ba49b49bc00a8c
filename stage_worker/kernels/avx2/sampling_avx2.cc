// The sampling kernels for AVX2 with FMA.

#include "stage_worker/kernels/avx2/avx2.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

constexpr float kNan = __builtin_nanf("");  // counts for nothing

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  if (__builtin_expect(i + kLanes <= n, 1)) return Load(x + i);
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n - i)), numbers);
  return Select(_mm256_castsi256_ps(mask), _mm256_maskload_ps(x + i, mask), Set(beyond));
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const Ints exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return ToInts(_mm256_and_ps(counted, _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent))));
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  const __m256 best = _mm256_set1_ps(weighing.best), scale = _mm256_set1_ps(weighing.scale);
  const __m256 floor = _mm256_set1_ps(weighing.floor);
  const __m256i even = _mm256_set1_epi64x(0xffffffff);
  uint64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    __m256i sum = _mm256_setzero_si256();
    bool any = false;
    for (int64_t i = begin; i < begin + kWeightBlock; i += 2 * kLanes) {
      const __m256 a = LoadUpTo(x, i, n, kNan), b = LoadUpTo(x, i + kLanes, n, kNan);
      const __m256 in_a = _mm256_cmp_ps(a, floor, _CMP_GE_OQ), in_b = _mm256_cmp_ps(b, floor, _CMP_GE_OQ);
      if (_mm256_movemask_ps(_mm256_or_ps(in_a, in_b)) == 0) continue;
      // Two weights fit in 32 bits; more may not.
      const __m256i both = _mm256_add_epi32(Weights(a, in_a, best, scale), Weights(b, in_b, best, scale));
      sum = _mm256_add_epi64(sum, _mm256_and_si256(both, even));
      sum = _mm256_add_epi64(sum, _mm256_srli_epi64(both, 32));
      any = true;
    }
    uint64_t block = 0;
    if (any) {
      const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
      block = static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
    }
    sums[begin / kWeightBlock] = block;
    total += block;
  }
  return total;
}

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

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  const __m256 lows = _mm256_set1_ps(low), highs = _mm256_set1_ps(high);
  int64_t inside = 0, count_above = 0;
  for (int64_t begin = 0; begin < n; begin += 4 * kLanes) {
    unsigned in[4], any = 0;
    for (int j = 0; j < 4; ++j) {
      const __m256 values = LoadUpTo(x, begin + j * kLanes, n, kNan);
      const unsigned over = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(values, highs, _CMP_GE_OQ)));
      in[j] = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(values, lows, _CMP_GE_OQ))) & ~over;
      any |= in[j];
      count_above += __builtin_popcount(over);
    }
    if (any == 0) continue;
    // No branch a vector, because it would be unpredictable: stores all lanes, those inside first.
    for (int j = 0; j < 4; ++j) {
      const __m128i lanes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLaneNumbers.of[in[j]]));
      const __m256i first = _mm256_set1_epi32(static_cast<int>(begin + j * kLanes));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices + inside),
                          _mm256_add_epi32(_mm256_cvtepu8_epi32(lanes), first));
      inside += __builtin_popcount(in[j]);
    }
  }
  *above = count_above;
  return inside;
}

void Penalize(const uint8_t* seen, int64_t n, float penalty, float* x) {
  const __m256 penalties = _mm256_set1_ps(penalty);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i marks = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(seen + i));
    if (_mm_testz_si128(marks, marks) != 0) continue;
    const __m256i unmarked = _mm256_cmpeq_epi32(_mm256_cvtepu8_epi32(marks), _mm256_setzero_si256());
    const __m256 values = _mm256_loadu_ps(x + i);
    const __m256 above = _mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_GT_OQ);
    const __m256 penalized =
        _mm256_blendv_ps(_mm256_mul_ps(values, penalties), _mm256_div_ps(values, penalties), above);
    _mm256_storeu_ps(x + i, _mm256_blendv_ps(penalized, values, _mm256_castsi256_ps(unmarked)));
  }
  kSamplingScalar.penalize(seen + i, n - i, penalty, x + i);
}

}  // namespace

const SamplingKernels kSamplingAvx2 = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
