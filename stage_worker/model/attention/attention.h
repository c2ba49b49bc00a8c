#ifndef STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_

// Attention over the paged KV cache, in three phases. Each runs on all threads of the gang.
// Latent attention (AttentionSpec::latent) is computed in its absorbed form; r is kv_rank, d is rope.dims.

#include <cstdint>
#include <vector>

#include "common/model/hyper_parameters.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// The angles of rotary position embedding (RoFormer, Su et al. 2021), with linear, YaRN (Peng et al. 2023) and Llama 3
// scaling. Computed in double with our own arithmetic, then rounded to float: the same bits on every machine.
// Immutable.
class RopeTable {
 public:
  // rope_freqs: rope.dims / 2 divisors of the frequencies where rope.factors says that there are some.
  RopeTable(const RopeParameters& rope, const std::vector<float>& rope_freqs);

  // cos and sin [rope.dims / 2] of one position, to be applied to every head. With YaRN both carry the magnitude.
  void Angles(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;  // [rope.dims / 2] radians per position
  double magnitude_ = 1;
};

// Phase 1. From the normalised input [rows, D]: q = Wq a (+ bq) into scratch.q; k and v alike into the pool. Heads of q
// and k get their RMSNorm, where the model has it, then RoPE.
//   Gates     of gated attention go to scratch.gates, before anything else.
//   Sharing   by heads: the thread that computes a head also finishes it. Where heads are not shared
//             (SharesWholeHeads), there is a barrier inside. The barrier after the phase is the caller's.
//   Latent    scratch.q is [heads][r + d] a row: (Wk_b n | rotated p) of every head, not scaled. The pool holds every
//             row's (RMSNorm of the latent | rotated key) as the key of KV head 0.
void ProjectQkv(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker);

// Phase 2. scratch.attended = softmax(score_scale * q K^T) V of every row over the positions that AttentionSpec lets it
// see, with the sink of each head if there is one: [rows, Nq*H]; latent: [rows, Nq*kv_rank]. Gated attention: times
// sigmoid(scratch.gates), element by element.
//   Sharing   threads divide the walks while they work (SharedWork). A walk that is long for its share of the step is
//             cut into pieces. The thread that ends the last piece merges the walk's granules in ascending order, then
//             the sink. So `attended` is complete at the caller's barrier after this phase.
//   Safety    blocks whose positions no row of the step sees are never touched; their table entries may hold anything.
void Attend(const StageLayer& layer, const StepContext& step, const Worker& worker);

// Phase 3. The input of the output projection, [rows, Nq*H], from scratch.attended; valid as PrepareInput's. Latent:
// Wv_b of every head times its attended [r].
Activations Attended(const StageLayer& layer, const StepContext& step, const Worker& worker);

// Lays out the V tile [16 positions][value_dim] whose values are the first value_dim dimensions of a K tile
// [key_dim][16 positions], in their stored type (KvTileBytes). Q8_0: both widths are multiples of kKvGroup.
void LayOutValues(KvType type, const uint8_t* k_tile, int64_t key_dim, int64_t value_dim, uint8_t* v_tile);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ATTENTION_ATTENTION_H_
