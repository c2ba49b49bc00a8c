#ifndef STAGECOACH_STAGE_WORKER_MODEL_QKV_H_
#define STAGECOACH_STAGE_WORKER_MODEL_QKV_H_

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// From the normalised input [rows, D]: q = Wq a (+ bq) into scratch.q, k and v alike into the pool; q and k heads with
// their RMSNorm where the model has it, then with RoPE. Runs on all threads, shared by heads: whoever computes a head
// finishes it. Leaves the barrier after it to the caller, and has one inside where heads are not shared
// (SharesWholeHeads). Latent attention: ProjectLatent.
void ProjectQkv(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_QKV_H_
