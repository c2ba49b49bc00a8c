// The scalar twin of the gated delta rule.

#include <cmath>

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

float Total(const float sums[kDeltaSums]) { return (sums[0] + sums[2]) + (sums[1] + sums[3]); }

}  // namespace

void DeltaPanelScalar(const DeltaSpan& span, int64_t value, int64_t values) {
  float* const after = span.after + value * span.dim;
  for (int64_t j = 0; j < values; ++j) {
    const float* from = span.before == nullptr ? nullptr : span.before + value * span.dim;
    for (int64_t row = 0; row < span.rows; ++row, from = after) {
      const float* const k = span.k + row * span.dim;
      const float* const q = span.q + row * span.dim;
      const float decay = span.decay[row * span.gate_stride], beta = span.beta[row * span.gate_stride];
      const auto state = [&](int64_t i) { return from == nullptr ? 0.0f : from[i * values + j]; };
      float dots[kDeltaSums] = {};
      for (int64_t i = 0; i < span.dim; ++i) dots[i % kDeltaSums] = std::fma(state(i), k[i], dots[i % kDeltaSums]);
      const float step = beta * std::fma(-decay, Total(dots), span.v[row * span.dim + value + j]);
      float sums[kDeltaSums] = {};
      for (int64_t i = 0; i < span.dim; ++i) {
        const float x = std::fma(k[i], step, decay * state(i));
        after[i * values + j] = x;
        sums[i % kDeltaSums] = std::fma(x, q[i], sums[i % kDeltaSums]);
      }
      span.out[row * span.out_stride + value + j] = Total(sums);
    }
  }
}

void DeltaRuleScalar(const DeltaSpan& span) {
  for (int64_t value = 0; value < span.dim; value += kTileValues) {
    const int64_t left = span.dim - value;
    DeltaPanelScalar(span, value, left < kTileValues ? left : kTileValues);
  }
}

}  // namespace stagecoach
