#ifndef STAGECOACH_STAGE_WORKER_KERNELS_SAMPLING_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_SAMPLING_H_

// What a sampler does to a whole row of logits, behind one table of functions per instruction set. sampling_scalar.cc
// defines every function and the others give the same results. Weights are integers: their sums are exact, so no order
// of additions has to be agreed on, and vectors in which nothing counts are skipped.

#include <cstdint>

namespace stagecoach {

// The largest logit that is a number, where it first occurs, and how many of the row are NaN or +infinity. A row of
// NaN and -infinity alone has max -infinity at index 0.
struct LogitPeak {
  float max;
  int64_t index;
  int64_t invalid;
};

// What a logit x weighs: 0 below `floor` or where it is NaN, else
//   round_to_even(2^((x - best) * scale) * kWeightOne),
// at most kWeightOne, since no x exceeds `best`. `best` is finite, `scale` finite and at least 0: log2(e) for the
// softmax.
struct Weighing {
  float best;
  float scale;
  float floor;
};
inline constexpr uint32_t kWeightOne = uint32_t{1} << 30;
inline constexpr int kWeightBlock = 64;  // logits that share a sum

struct SamplingKernels {
  // n >= 1.
  LogitPeak (*find_peak)(const float* x, int64_t n);

  // sums[b] = the weights of x[64 b .. 64 b + 63] together; returns the sum of all.
  uint64_t (*weigh)(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums);

  // weights[i] = the weight of x[i].
  void (*weigh_each)(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights);

  // Writes the ascending indices of all x with low <= x < high and returns their number; *above = how many are at least
  // `high`. `indices` has room for n + kGatherSlack.
  int64_t (*gather)(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above);

  // Where seen[i] is not 0: x[i] / penalty when x[i] is above 0, else x[i] * penalty.
  void (*penalize)(const uint8_t* seen, int64_t n, float penalty, float* x);
};
inline constexpr int kGatherSlack = 16;

extern const SamplingKernels kSamplingScalar;
extern const SamplingKernels kSamplingAvx2;
extern const SamplingKernels kSamplingAvx512;
extern const SamplingKernels kSamplingNeon;

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_SAMPLING_H_
