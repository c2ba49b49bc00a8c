#ifndef STAGECOACH_STAGE_WORKER_MODEL_LATENT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LATENT_H_

// Latent attention (AttentionSpec::latent) around the walk over the cache, in its absorbed form: r is kv_rank, d is
// rope.dims.

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// From the normalised input [rows, D]: the queries into scratch.q, of a row [heads][r + d] from row * q_stride on,
// (Wk_b n | rotated p) of every head, not scaled; and every row's (RMSNorm of the latent | rotated key) into the pool
// as the key of KV head 0. Runs on all threads of the gang and leaves the barrier after it to the caller.
void ProjectLatent(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker);

// The input of attn_output, Wv_b of every head times what attention left in scratch.attended, of a row [heads][r] from
// row * attended_stride on. Like Attended (layer_input.h), which calls it.
Activations LatentOutput(const StageLayer& layer, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LATENT_H_
