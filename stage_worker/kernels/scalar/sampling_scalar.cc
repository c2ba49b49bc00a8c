// The definition of every sampling kernel.

#include <bit>
#include <cmath>
#include <limits>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

LogitPeak FindPeak(const float* x, int64_t n) {
  LogitPeak peak = {-kInf, 0, 0};
  for (int64_t i = 0; i < n; ++i) {
    if (!(x[i] < kInf)) ++peak.invalid;
    if (x[i] > peak.max) peak.max = x[i], peak.index = i;
  }
  return peak;
}

// The power of two is the polynomial of Cephes' exp2f times 2^n. Everything from 2^-32 down weighs 0, and so does a NaN
// (-infinity * 0).
uint32_t WeightOf(float x, const Weighing& weighing) {
  if (!(x >= weighing.floor)) return 0;
  float power = (x - weighing.best) * weighing.scale;
  power = power > -32.0f ? power : -32.0f;
  constexpr float kRound = kRoundFloat + 30.0f;  // and the exponent of kWeightOne
  const float shifted = power + kRound;
  const float f = power - (shifted - kRound);
  const float y = Polynomial(kExp2Polynomial, f);
  // The low bits of `shifted` are n + 30.
  const uint32_t bits = std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(shifted) << 23);
  return static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(bits)));
}

uint64_t Weigh(const float* x, int64_t n, const Weighing& weighing, uint64_t* sums) {
  uint64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i % kWeightBlock == 0) sums[i / kWeightBlock] = 0;
    const uint32_t weight = WeightOf(x[i], weighing);
    sums[i / kWeightBlock] += weight;
    total += weight;
  }
  return total;
}

void WeighEach(const float* x, int64_t n, const Weighing& weighing, uint32_t* weights) {
  for (int64_t i = 0; i < n; ++i) weights[i] = WeightOf(x[i], weighing);
}

int64_t Gather(const float* x, int64_t n, float low, float high, int32_t* indices, int64_t* above) {
  int64_t inside = 0;
  *above = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] >= high) {
      ++*above;
    } else if (x[i] >= low) {
      indices[inside++] = static_cast<int32_t>(i);
    }
  }
  return inside;
}

void Penalize(const uint8_t* seen, int64_t n, float penalty, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    if (seen[i] != 0) x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
  }
}

}  // namespace

const SamplingKernels kSamplingScalar = {
    .find_peak = FindPeak, .weigh = Weigh, .weigh_each = WeighEach, .gather = Gather, .penalize = Penalize};

}  // namespace stagecoach
