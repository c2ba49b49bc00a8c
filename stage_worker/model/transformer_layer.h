#ifndef STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_
#define STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_

#include <cstdint>

#include "stage_worker/model/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// One layer on the residual stream x [rows, D], in place, by all threads of the gang together:
//   x += Wo attention(RMSNorm(x));  x += Wdown (silu(Wgate m) * Wup m), m = RMSNorm(x).
// `layer` counts within this stage. x is complete when every thread has returned and met at a barrier, which is the
// caller's.
void RunTransformerLayer(const LayerWeights& weights, int64_t layer, const StepContext& step, const Worker& worker,
                         float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_
