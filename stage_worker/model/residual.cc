#include "stage_worker/model/residual.h"

#include <algorithm>

namespace stagecoach {

float* OutputTarget(const StageLayer& layer, const StepContext& step, float* x) {
  return layer.spec.completes_outputs() ? step.scratch.delta.as<float>() : x;
}

void AddCompleted(const StageLayer& layer, const std::vector<float>& post_norm, const StepContext& step,
                  const Worker& worker, float* x) {
  if (!layer.spec.completes_outputs()) return;
  const Gang::Part part = worker.Share(step.plan.row_count());
  for (int64_t row = part.begin; row < part.end; ++row) {
    float* const delta = step.scratch.delta.as<float>() + row * step.hidden;
    if (layer.spec.post_norms) {
      step.kernels.rms_norm(delta, post_norm.data(), step.hidden, layer.spec.norm_eps, delta);
    }
    step.kernels.add_scaled(delta, layer.spec.residual_scale, step.hidden, x + row * step.hidden);
    std::fill_n(delta, step.hidden, 0.0f);
  }
  worker.Barrier();
}

}  // namespace stagecoach
