#include "stage_worker/model/activation.h"

#include <algorithm>

namespace stagecoach {
namespace {

// gpt-oss's constants, which no file holds.
constexpr float kClampAlpha = 1.702f;
constexpr float kClampLimit = 7.0f;

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float z = std::max(gate[i], -12.0f);
    const float y = z * __builtin_fmaf(0.07135481627f, z * z, 1.5957691216057308f);
    out[i] = z / (1.0f + FixedExp(-y)) * up[i];
  }
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], kClampLimit), u = std::clamp(up[i], -kClampLimit, kClampLimit);
    out[i] = g / (1.0f + FixedExp(-(kClampAlpha * g))) * (u + 1.0f);
  }
}

}  // namespace

void ApplyActivation(const Kernels& kernels, Activation activation, const float* gate, const float* up, int64_t n,
                     float* out) {
  switch (activation) {
    case Activation::kSwiglu: return kernels.swiglu(gate, up, n, out);
    case Activation::kGeglu: return Geglu(gate, up, n, out);
    case Activation::kClampedSwiglu: return ClampedSwiglu(gate, up, n, out);
  }
}

}  // namespace stagecoach
