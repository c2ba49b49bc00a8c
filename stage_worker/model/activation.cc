#include "stage_worker/model/activation.h"

namespace stagecoach {
namespace {

// gpt-oss's constants, which no file holds.
constexpr float kClampAlpha = 1.702f;
constexpr float kClampLimit = 7.0f;

}  // namespace

void ApplyActivation(const Kernels& kernels, Activation activation, const float* gate, const float* up, int64_t n,
                     float* out) {
  switch (activation) {
    case Activation::kSwiglu: return kernels.swiglu(gate, up, n, out);
    case Activation::kGeglu: return kernels.geglu(gate, up, n, out);
    case Activation::kClampedSwiglu: return kernels.clamped_swiglu(gate, up, n, kClampAlpha, kClampLimit, out);
  }
}

}  // namespace stagecoach
