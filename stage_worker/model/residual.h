#ifndef STAGECOACH_STAGE_WORKER_MODEL_RESIDUAL_H_
#define STAGECOACH_STAGE_WORKER_MODEL_RESIDUAL_H_

// How what a half of a layer gives joins the residual stream x [rows, D]. Most add it at once, part by part. One whose
// layer normalises or scales outputs (LayerSpec::completes_outputs) adds it to scratch.delta, which is 0 before and
// after, until it is complete.

#include <vector>

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// What a half adds its output to: x or scratch.delta.
float* OutputTarget(const StageLayer& layer, const StepContext& step, float* x);

// x += residual_scale * RMSNorm(delta), the norm where the layer has post_norms. On all threads of the gang, after the
// barrier behind the half; nothing for layers that add at once. Otherwise ends with a barrier.
void AddCompleted(const StageLayer& layer, const std::vector<float>& post_norm, const StepContext& step,
                  const Worker& worker, float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_RESIDUAL_H_
