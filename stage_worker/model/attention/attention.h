#ifndef STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_

// Attention over the paged KV cache: of grouped queries, or of latent attention's absorbed ones.

#include <cstdint>

#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// Lays out the V tile [16 positions][value_dim] whose values are the first value_dim dimensions of a K tile
// [key_dim][16 positions], as they are stored (KvTileBytes says how). Q8_0: both widths are multiples of kKvGroup.
void LayOutValues(KvType type, const uint8_t* k_tile, int64_t key_dim, int64_t value_dim, uint8_t* v_tile);

// scratch.attended = softmax(score_scale * q K^T) V for every row over the positions that AttentionSpec lets it see,
// with the sink of each head where there is one: [rows, Nq*H], of latent attention [rows, Nq*kv_rank]. Work is taken
// from scratch.next_attention_work, which is 0 before and after. Runs on all threads of the gang and leaves the barrier
// after it to the caller. A walk that is long for its share of the step is cut into pieces that any thread takes;
// whoever ends the last piece of a walk merges its granules in ascending order, the sink behind the last. So attended
// is complete at the barrier after this phase, and the next phase has nothing to merge. Blocks whose positions no row
// of the step sees are never touched: their places in the table may hold anything.
void Attend(const StageLayer& layer, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_
