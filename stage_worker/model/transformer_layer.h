#ifndef STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_
#define STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// One layer on the residual stream x [rows, D], in place, by all threads of the gang together:
//   x += Wo attention(RMSNorm(x));  x += ffn(RMSNorm(x)),
// or with the norms and the scale that LayerSpec says.
// Ends with a barrier: x is complete when a thread has returned.
void RunTransformerLayer(const StageLayer& layer, const StepContext& step, const Worker& worker, float* x);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_TRANSFORMER_LAYER_H_
