#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_

// The sampling kernels (sampling.h), written with vector_math.h's vectors. Included by the sampling_*.cc units behind
// the header of their instruction set.

#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int64_t kPeakChunk = 1024;  // logits whose largest is looked for before it is known where it lies

// What the unit defines.
inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond);  // x[i .. n), and `beyond` behind
// Where `counted`, y with the low bits of `shifted` added to its exponent, as integers; else 0.
inline Ints RoundWeights(Mask counted, Floats y, Floats shifted);
// Adds a + b, which fits in 32 bits without a sign, to sums of 64 bits; and all of these together.
inline Longs AddWeights(Longs sums, Ints a, Ints b);
inline uint64_t Total(Longs sums);
inline int CountOf(Mask mask);
// Stores `first` plus the number of each lane of the mask, ascending; what lies behind them in kLanes may change too.
inline void StoreLanes(Mask mask, int32_t first, int32_t* out);
inline Mask Marked(const uint8_t* marks);  // the lanes whose byte is not 0

constexpr float kNan = __builtin_nanf("");  // counts for nothing
constexpr int kTogether = 4;                // vectors, in most of which nothing counts where few logits do

inline Floats LoadOrNan(const float* x, int64_t i, int64_t n) {
  return __builtin_expect(i + kLanes <= n, 1) ? Load(x + i) : LoadUpTo(x, i, n, kNan);
}

inline bool AnyOf(const Mask* masks) { return Any(Either(Either(masks[0], masks[1]), Either(masks[2], masks[3]))); }

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

// A floor below which no logit weighs anything, so that vectors of such are skipped. 2^-31 is half a unit; whatever the
// roundings, a logit below `least` has no larger power than `least` itself.
inline float FloorOf(const Weighing& weighing) {
  const float least = weighing.best - 31.5f / weighing.scale;
  const bool nothing = (least - weighing.best) * weighing.scale < -31.25f;
  return nothing && least > weighing.floor ? least : weighing.floor;
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  const Floats best = Set(weighing.best), scale = Set(weighing.scale), floor = Set(FloorOf(weighing));
  uint64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    Longs sum = {};
    bool any = false;
    for (int64_t i = begin; i < begin + kWeightBlock; i += kTogether * kLanes) {
      Floats values[kTogether];
      Mask counted[kTogether];
      for (int j = 0; j < kTogether; ++j) {
        values[j] = LoadOrNan(x, i + j * kLanes, n);
        counted[j] = AtLeast(values[j], floor);
      }
      if (!AnyOf(counted)) continue;
      for (int j = 0; j < kTogether; j += 2) {
        sum = AddWeights(sum, Weights(values[j], counted[j], best, scale),
                         Weights(values[j + 1], counted[j + 1], best, scale));
      }
      any = true;
    }
    sums[begin / kWeightBlock] = any ? Total(sum) : 0;
    total += sums[begin / kWeightBlock];
  }
  return total;
}

void WeighEach(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Floats values = LoadOrNan(x, i, n);
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

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  const Floats lows = Set(low), highs = Set(high);
  int64_t inside = 0, count_above = 0;
  for (int64_t begin = 0; begin < n; begin += kTogether * kLanes) {
    Mask in[kTogether];
    for (int j = 0; j < kTogether; ++j) {
      const Floats values = LoadOrNan(x, begin + j * kLanes, n);
      const Mask over = AtLeast(values, highs);
      in[j] = Without(AtLeast(values, lows), over);
      count_above += CountOf(over);
    }
    if (!AnyOf(in)) continue;
    // No branch a vector, because it would be unpredictable: stores all lanes, those inside first.
    for (int j = 0; j < kTogether; ++j) {
      StoreLanes(in[j], static_cast<int32_t>(begin + j * kLanes), indices + inside);
      inside += CountOf(in[j]);
    }
  }
  *above = count_above;
  return inside;
}

void Penalize(const uint8_t* seen, int64_t n, float penalty, float* x) {
  const Floats penalties = Set(penalty);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Mask marked = Marked(seen + i);
    if (!Any(marked)) continue;
    const Floats values = Load(x + i);
    const Floats penalized = Select(Over(values, Set(0.0f)), values / penalties, values * penalties);
    Store(x + i, Select(marked, penalized, values));
  }
  kSamplingScalar.penalize(seen + i, n - i, penalty, x + i);
}

constexpr SamplingKernels kVectorSampling = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_SAMPLING_H_
