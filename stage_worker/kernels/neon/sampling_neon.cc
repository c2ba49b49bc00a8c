// The sampling kernels for Arm.

#include "stage_worker/kernels/neon/neon.h"
#include "stage_worker/kernels/vector_sampling.h"

namespace stagecoach {
namespace {

constexpr float kNan = __builtin_nanf("");  // counts for nothing

inline Floats LoadUpTo(const float* x, int64_t i, int64_t n, float beyond) {
  if (i + kLanes <= n) return Load(x + i);
  float values[kLanes];
  for (int j = 0; j < kLanes; ++j) values[j] = i + j < n ? x[i + j] : beyond;
  return Load(values);
}

inline Ints RoundWeights(Mask counted, Floats y, Floats shifted) {
  const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
  return vandq_s32(vreinterpretq_s32_u32(counted), ToInts(vreinterpretq_f32_u32(bits)));
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  const float32x4_t best = vdupq_n_f32(weighing.best), scale = vdupq_n_f32(weighing.scale);
  const float32x4_t floor = vdupq_n_f32(weighing.floor);
  uint64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = begin + kWeightBlock < n ? begin + kWeightBlock : n;
    uint64x2_t sum = vdupq_n_u64(0);
    for (int64_t i = begin; i < end; i += kLanes) {
      const float32x4_t values = LoadUpTo(x, i, end, kNan);
      const uint32x4_t counted = vcgeq_f32(values, floor);
      if (Any(counted)) sum = vpadalq_u32(sum, vreinterpretq_u32_s32(Weights(values, counted, best, scale)));
    }
    sums[begin / kWeightBlock] = vaddvq_u64(sum);
    total += sums[begin / kWeightBlock];
  }
  return total;
}

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  const float32x4_t lows = vdupq_n_f32(low), highs = vdupq_n_f32(high);
  int64_t inside = 0, count_above = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    const float32x4_t values = LoadUpTo(x, i, n, kNan);
    const uint32x4_t over = vcgeq_f32(values, highs);
    const uint32x4_t in = vbicq_u32(vcgeq_f32(values, lows), over);
    count_above += vaddvq_u32(vshrq_n_u32(over, 31));
    if (!Any(in)) continue;
    // Writes every lane; the next one overwrites those that are not inside.
    uint32_t lanes[kLanes];
    vst1q_u32(lanes, vshrq_n_u32(in, 31));
    for (int j = 0; j < kLanes; ++j) {
      indices[inside] = static_cast<int32_t>(i + j);
      inside += lanes[j];
    }
  }
  *above = count_above;
  return inside;
}

void Penalize(const uint8_t* seen, int64_t n, float penalty, float* x) {
  const float32x4_t penalties = vdupq_n_f32(penalty);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const uint32_t marks[kLanes] = {seen[i], seen[i + 1], seen[i + 2], seen[i + 3]};
    const uint32x4_t marked = vcgtq_u32(vld1q_u32(marks), vdupq_n_u32(0));
    if (!Any(marked)) continue;
    const float32x4_t values = vld1q_f32(x + i);
    const uint32x4_t above = vcgtq_f32(values, vdupq_n_f32(0));
    const float32x4_t penalized = vbslq_f32(above, vdivq_f32(values, penalties), vmulq_f32(values, penalties));
    vst1q_f32(x + i, vbslq_f32(marked, penalized, values));
  }
  kSamplingScalar.penalize(seen + i, n - i, penalty, x + i);
}

}  // namespace

const SamplingKernels kSamplingNeon = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
