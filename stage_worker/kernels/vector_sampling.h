#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_

// Sampling kernels (sampling.h) written with vector_math.h's vectors. The sampling_*.cc units include it after the
// header of their instruction set, and define the other kernels.

#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int64_t kPeakChunk = 1024;  // logits whose largest is looked for before it is known where it lies

// What the unit defines.
inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond);  // x[i .. n), and `beyond` behind
// Where `counted`, y with the low bits of `shifted` added to its exponent, as integers; else 0.
inline Ints RoundWeights(Mask counted, Floats y, Floats shifted);

LogitPeak FindPeak(const float* x, int64_t n) {
  constexpr float kInf = __builtin_inff();
  const Floats infinity = Set(kInf), lowest = Set(-kInf);
  LogitPeak peak = {-kInf, 0, 0};
  int64_t best_chunk = 0;
  for (int64_t begin = 0; begin < n; begin += kPeakChunk) {
    const int64_t end = begin + kPeakChunk < n ? begin + kPeakChunk : n;
    Floats largest[4] = {lowest, lowest, lowest, lowest};
    Mask invalid = {};
    const auto take = [&](Floats values, int j) {
      largest[j] = MaxNumber(values, largest[j]);
      invalid = Either(invalid, NotBelow(values, infinity));
    };
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) take(Load(x + i + j * kLanes), j);
    }
    for (; i < end; i += kLanes) take(LoadUpTo(x, i, end, -kInf), 0);
    if (Any(invalid)) {
      for (i = begin; i < end; ++i) peak.invalid += !(x[i] < kInf);
    }
    const float chunk_max = ReduceMax(Max(Max(largest[0], largest[1]), Max(largest[2], largest[3])));
    if (chunk_max > peak.max) peak.max = chunk_max, best_chunk = begin;
  }
  if (peak.max == -kInf) return peak;
  for (peak.index = best_chunk; x[peak.index] != peak.max;) ++peak.index;
  return peak;
}

// The weights of a vector of logits, 0 where they do not count.
inline Ints Weights(Floats x, Mask counted, Floats best, Floats scale) {
  const Floats round = Set(kRoundFloat + 30.0f);
  const Floats power = MaxNumber((x - best) * scale, Set(-32.0f));
  const Floats shifted = power + round;
  return RoundWeights(counted, Polynomial(kExp2Polynomial, power - (shifted - round)), shifted);
}

void WeighEach(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats values = LoadUpTo(x, i, n, __builtin_nanf(""));
    const Mask counted = AtLeast(values, Set(weighing.floor));
    const Ints found = Weights(values, counted, Set(weighing.best), Set(weighing.scale));
    if (i + kLanes <= n) {
      StoreInts(weights + i, found);
    } else {
      uint32_t all[kLanes];
      StoreInts(all, found);
      for (int j = 0; i + j < n; ++j) weights[i + j] = all[j];
    }
  }
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_
