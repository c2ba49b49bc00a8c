#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_

#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// out [rows, D] += what the feed-forward part gives for the input m [rows, D], with biases where the model has them.
// Runs on all threads of the gang with barriers inside; the one after it is the caller's.
//
// A unit is y = Wdown act(Wgate m + b, Wup m + b) + b, and a dense layer has one. In a layer of experts a router
// chooses for every row by that row alone (router.h); its logits are one product in float or whatever type the matrix
// has. Per row, with y_i of the i-th chosen expert:
//   sum = w_0 y_0;  sum = fma(w_i, y_i, sum) for i = 1, 2, ..;  sum += the shared unit's output;  out += sum,
// all in float, column by column. Which rows are computed together, in which pieces and by whom changes no bit.
void AddFfn(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
            float* out);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_
