#ifndef STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_QKV_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_QKV_H_

// What a layer does around the walk over the KV cache (attention.h). Both run on all threads of the gang. Of latent
// attention (AttentionSpec::latent) it is the absorbed form: r is kv_rank, d is rope.dims.

#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// From the normalised input [rows, D]: q = Wq a (+ bq) into scratch.q, k and v alike into the pool; q and k heads with
// their RMSNorm where the model has it, then with RoPE. Shared by heads: whoever computes a head finishes it. Leaves
// the barrier after it to the caller, and has one inside where heads are not shared (SharesWholeHeads).
// Latent: scratch.q is [heads][r + d] a row, (Wk_b n | rotated p) of every head, not scaled; the pool has every row's
// (RMSNorm of the latent | rotated key) as the key of KV head 0.
void ProjectQkv(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker);

// The output projection's input, from what attention left in scratch.attended: [rows, Nq*H]. Valid as PrepareInput's.
// Latent: Wv_b of every head times its attended [r].
Activations Attended(const StageLayer& layer, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_QKV_H_
