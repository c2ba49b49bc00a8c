// The sampling kernels for Arm.

#include "stage_worker/kernels/neon.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 4;
constexpr int64_t kPeakChunk = 1024;  // logits whose largest is looked for before it is known where it lies

// x[i .. n), and NaN in the lanes behind: they count for nothing.
inline float32x4_t LoadUpTo(const float* x, int64_t i, int64_t n) {
  if (i + kLanes <= n) return vld1q_f32(x + i);
  float values[kLanes];
  for (int j = 0; j < kLanes; ++j) values[j] = i + j < n ? x[i + j] : __builtin_nanf("");
  return vld1q_f32(values);
}

inline bool Any(uint32x4_t mask) { return vmaxvq_u32(mask) != 0; }

LogitPeak FindPeak(const float* x, int64_t n) {
  const float32x4_t infinity = vdupq_n_f32(__builtin_inff()), lowest = vdupq_n_f32(-__builtin_inff());
  LogitPeak peak = {-__builtin_inff(), 0, 0};
  int64_t best_chunk = 0;
  for (int64_t begin = 0; begin < n; begin += kPeakChunk) {
    const int64_t end = begin + kPeakChunk < n ? begin + kPeakChunk : n;
    float32x4_t largest[4] = {lowest, lowest, lowest, lowest};
    uint32x4_t valid = vdupq_n_u32(~0u);
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) {
        const float32x4_t values = vld1q_f32(x + i + j * kLanes);
        largest[j] = vmaxnmq_f32(values, largest[j]);  // of a NaN and a number the number
        valid = vandq_u32(valid, vcltq_f32(values, infinity));
      }
    }
    const bool ragged = i < end;
    for (; i < end; i += kLanes) largest[0] = vmaxnmq_f32(LoadUpTo(x, i, end), largest[0]);
    if (ragged || Any(vmvnq_u32(valid))) {
      for (i = begin; i < end; ++i) peak.invalid += !(x[i] < __builtin_inff());
    }
    const float chunk_max = vmaxvq_f32(vmaxq_f32(vmaxq_f32(largest[0], largest[1]), vmaxq_f32(largest[2], largest[3])));
    if (chunk_max > peak.max) peak.max = chunk_max, best_chunk = begin;
  }
  if (peak.max == -__builtin_inff()) return peak;
  for (peak.index = best_chunk; x[peak.index] != peak.max;) ++peak.index;
  return peak;
}

// The weights of 4 logits, 0 where they do not count.
inline uint32x4_t Weights(float32x4_t x, uint32x4_t counted, float32x4_t best, float32x4_t scale) {
  const float32x4_t round = vdupq_n_f32(12582912.0f + 30.0f);
  float32x4_t power = vmulq_f32(vsubq_f32(x, best), scale);
  power = vmaxnmq_f32(power, vdupq_n_f32(-32.0f));  // of a NaN and a number the number
  const float32x4_t shifted = vaddq_f32(power, round);
  const float32x4_t f = vsubq_f32(power, vsubq_f32(shifted, round));
  float32x4_t y = vdupq_n_f32(1.535336188319500e-4f);
  y = vfmaq_f32(vdupq_n_f32(1.339887440266574e-3f), y, f);
  y = vfmaq_f32(vdupq_n_f32(9.618437357674640e-3f), y, f);
  y = vfmaq_f32(vdupq_n_f32(5.550332471162809e-2f), y, f);
  y = vfmaq_f32(vdupq_n_f32(2.402264791363012e-1f), y, f);
  y = vfmaq_f32(vdupq_n_f32(6.931472028550421e-1f), y, f);
  y = vfmaq_f32(vdupq_n_f32(1.0f), y, f);
  const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(y), vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
  return vandq_u32(counted, vcvtnq_u32_f32(vreinterpretq_f32_u32(bits)));
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  const float32x4_t best = vdupq_n_f32(weighing.best), scale = vdupq_n_f32(weighing.scale);
  const float32x4_t floor = vdupq_n_f32(weighing.floor);
  uint64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = begin + kWeightBlock < n ? begin + kWeightBlock : n;
    uint64x2_t sum = vdupq_n_u64(0);
    for (int64_t i = begin; i < end; i += kLanes) {
      const float32x4_t values = LoadUpTo(x, i, end);
      const uint32x4_t counted = vcgeq_f32(values, floor);
      if (Any(counted)) sum = vpadalq_u32(sum, Weights(values, counted, best, scale));
    }
    sums[begin / kWeightBlock] = vaddvq_u64(sum);
    total += sums[begin / kWeightBlock];
  }
  return total;
}

void WeighEach(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const float32x4_t values = LoadUpTo(x, i, n);
    const uint32x4_t counted = vcgeq_f32(values, vdupq_n_f32(weighing.floor));
    uint32_t all[kLanes];
    vst1q_u32(all, Weights(values, counted, vdupq_n_f32(weighing.best), vdupq_n_f32(weighing.scale)));
    for (int j = 0; j < kLanes && i + j < n; ++j) weights[i + j] = all[j];
  }
}

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  const float32x4_t lows = vdupq_n_f32(low), highs = vdupq_n_f32(high);
  int64_t inside = 0, count_above = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    const float32x4_t values = LoadUpTo(x, i, n);
    const uint32x4_t over = vcgeq_f32(values, highs);
    const uint32x4_t in = vbicq_u32(vcgeq_f32(values, lows), over);
    count_above += vaddvq_u32(vshrq_n_u32(over, 31));
    if (!Any(in)) continue;
    // Every lane is written, and the next one over it where it was not inside.
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
  for (; i < n; ++i) {
    if (seen[i] != 0) x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
  }
}

}  // namespace

const SamplingKernels kSamplingNeon = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
