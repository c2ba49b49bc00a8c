#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_H_

#include "stage_worker/model/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// scratch.ffn_input [rows, F] = silu(Wgate m) * (Wup m) in the forms that the down projection wants, from the input
// m [rows, D]. Runs on all threads of the gang, shared by output panels; the barrier after it is the caller's.
void RunGatedUp(const LayerWeights& weights, const Activations& input, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
