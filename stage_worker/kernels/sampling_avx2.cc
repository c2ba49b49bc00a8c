// The sampling kernels for AVX2 with FMA.

#include "stage_worker/kernels/avx2.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kPeakChunk = 1024;  // logits whose largest is looked for before it is known where it lies

// x[i .. n), and NaN in the lanes behind: they count for nothing.
inline __m256 LoadUpTo(const float* x, int64_t i, int64_t n) {
  if (__builtin_expect(i + kLanes <= n, 1)) return _mm256_loadu_ps(x + i);
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n - i)), numbers);
  return _mm256_blendv_ps(_mm256_set1_ps(__builtin_nanf("")), _mm256_maskload_ps(x + i, mask),
                          _mm256_castsi256_ps(mask));
}

LogitPeak FindPeak(const float* x, int64_t n) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff()), lowest = _mm256_set1_ps(-__builtin_inff());
  LogitPeak peak = {-__builtin_inff(), 0, 0};
  int64_t best_chunk = 0;
  for (int64_t begin = 0; begin < n; begin += kPeakChunk) {
    const int64_t end = begin + kPeakChunk < n ? begin + kPeakChunk : n;
    __m256 largest[4] = {lowest, lowest, lowest, lowest};
    __m256 invalid = _mm256_setzero_ps();
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) {
        const __m256 values = _mm256_loadu_ps(x + i + j * kLanes);
        largest[j] = _mm256_max_ps(values, largest[j]);  // of a NaN and a number the second
        invalid = _mm256_or_ps(invalid, _mm256_cmp_ps(values, infinity, _CMP_NLT_UQ));
      }
    }
    const bool ragged = i < end;
    for (; i < end; i += kLanes) largest[0] = _mm256_max_ps(LoadUpTo(x, i, end), largest[0]);
    if (ragged || _mm256_movemask_ps(invalid) != 0) {
      for (i = begin; i < end; ++i) peak.invalid += !(x[i] < __builtin_inff());
    }
    const float chunk_max =
        ReduceMax(_mm256_max_ps(_mm256_max_ps(largest[0], largest[1]), _mm256_max_ps(largest[2], largest[3])));
    if (chunk_max > peak.max) peak.max = chunk_max, best_chunk = begin;
  }
  if (peak.max == -__builtin_inff()) return peak;
  for (peak.index = best_chunk; x[peak.index] != peak.max;) ++peak.index;
  return peak;
}

// The weights of 8 logits, 0 where they do not count.
inline __m256i Weights(__m256 x, __m256 counted, __m256 best, __m256 scale) {
  const __m256 round = _mm256_set1_ps(12582912.0f + 30.0f);
  __m256 power = _mm256_mul_ps(_mm256_sub_ps(x, best), scale);
  power = _mm256_max_ps(power, _mm256_set1_ps(-32.0f));  // of a NaN and a number the second
  const __m256 shifted = _mm256_add_ps(power, round);
  const __m256 f = _mm256_sub_ps(power, _mm256_sub_ps(shifted, round));
  __m256 y = _mm256_set1_ps(1.535336188319500e-4f);
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.339887440266574e-3f));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.618437357674640e-3f));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.550332471162809e-2f));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.402264791363012e-1f));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.931472028550421e-1f));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  const __m256 weights = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
  return _mm256_cvtps_epi32(_mm256_and_ps(counted, weights));
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
      const __m256 a = LoadUpTo(x, i, n), b = LoadUpTo(x, i + kLanes, n);
      const __m256 in_a = _mm256_cmp_ps(a, floor, _CMP_GE_OQ), in_b = _mm256_cmp_ps(b, floor, _CMP_GE_OQ);
      if (_mm256_movemask_ps(_mm256_or_ps(in_a, in_b)) == 0) continue;
      // Two weights fit 32 bits, more need not.
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

void WeighEach(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const __m256 values = LoadUpTo(x, i, n);
    const __m256 counted = _mm256_cmp_ps(values, _mm256_set1_ps(weighing.floor), _CMP_GE_OQ);
    const __m256i found = Weights(values, counted, _mm256_set1_ps(weighing.best), _mm256_set1_ps(weighing.scale));
    if (i + kLanes <= n) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + i), found);
    } else {
      uint32_t all[kLanes];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(all), found);
      for (int j = 0; i + j < n; ++j) weights[i + j] = all[j];
    }
  }
}

// For every set of lanes their numbers, ascending.
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
      const __m256 values = LoadUpTo(x, begin + j * kLanes, n);
      const unsigned over = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(values, highs, _CMP_GE_OQ)));
      in[j] = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(values, lows, _CMP_GE_OQ))) & ~over;
      any |= in[j];
      count_above += __builtin_popcount(over);
    }
    if (any == 0) continue;
    // No branch for each vector, which nothing could foresee: all lanes are stored, what is inside first.
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
  for (; i < n; ++i) {
    if (seen[i] != 0) x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
  }
}

}  // namespace

const SamplingKernels kSamplingAvx2 = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
