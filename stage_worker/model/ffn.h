#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_H_

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// out [rows, D] += Wdown act(Wgate m, Wup m) with biases where the model has them, from the input m [rows, D]; of a
// layer of experts what AddExperts says. Runs on all threads of the gang with barriers inside; the one after it is the
// caller's.
void AddFfn(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
            float* out);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_H_
