#ifndef STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_H_

// Grouped-query attention over the paged KV cache.

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// scratch.attended [rows, Nq*H] = softmax(q K^T / sqrt(H)) V for every row over positions up to its own. Work is taken
// from scratch.next_attention_work, which is 0 before and after. Runs on all threads of the gang and leaves the barrier
// after it to the caller. A walk that is long for its share of the step is cut into pieces that any thread takes;
// whoever ends the last piece of a walk merges its granules in ascending order. So attended is complete at the barrier
// after this phase, and the next phase has nothing to merge.
void Attend(const StageLayer& layer, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_H_
