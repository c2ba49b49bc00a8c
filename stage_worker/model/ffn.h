#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_H_

#include "stage_worker/model/step_context.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// scratch.gate [rows, F] = silu(Wgate m) * (Wup m), from m = scratch.normed [rows, D] and its int8 form. Runs on all
// threads of the gang, shared by output panels; the barrier after it is the caller's.
void RunGatedUp(const LayerWeights& weights, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
