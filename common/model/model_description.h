#ifndef STAGECOACH_COMMON_MODEL_MODEL_DESCRIPTION_H_
#define STAGECOACH_COMMON_MODEL_MODEL_DESCRIPTION_H_

// Which tensors a model has, and the role of each: the directory that the loader, the partitioner and `inspect` share.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/job/job_choices.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {

// The tensors of one layer; pointers into the GgufFile, nullptr: the model has none. Matrices are [out, in].
struct LayerTensors {
  const GgufTensor* attn_norm = nullptr;         // [D]; nullptr without pre_norms
  const GgufTensor* attn_q = nullptr;            // [q_rows, D]; nullptr when fused, and with q_rank
  const GgufTensor* attn_k = nullptr;            // [Nk*H, D]
  const GgufTensor* attn_v = nullptr;            // [Nk*H, D]
  const GgufTensor* attn_qkv = nullptr;          // [q_rows+2Nk*H, D]: rows of q, then k, then v; nullptr when separate
  const GgufTensor* attn_q_bias = nullptr;       // [Nq*H]
  const GgufTensor* attn_k_bias = nullptr;       // [Nk*H]
  const GgufTensor* attn_v_bias = nullptr;       // [Nk*H]
  const GgufTensor* attn_qkv_bias = nullptr;     // [(Nq+2Nk)*H]
  const GgufTensor* attn_q_norm = nullptr;       // [H], or [Nq*H] of QkNorm::kWhole
  const GgufTensor* attn_k_norm = nullptr;       // [H], or [Nk*H]
  const GgufTensor* attn_sinks = nullptr;        // [Nq]
  const GgufTensor* attn_output = nullptr;       // [D, Nq*value_dim]
  const GgufTensor* attn_output_bias = nullptr;  // [D]
  const GgufTensor* attn_post_norm = nullptr;    // [D]; nullptr without post_norms

  // Latent attention: r is kv_rank, d is rope.dims.
  const GgufTensor* attn_q_a = nullptr;        // [q_rank, D]; these three with a q_rank
  const GgufTensor* attn_q_a_norm = nullptr;   // [q_rank]
  const GgufTensor* attn_q_b = nullptr;        // [Nq*H, q_rank]
  const GgufTensor* attn_kv_a = nullptr;       // [r + d, D]: rows of the latent, then of the rotated key
  const GgufTensor* attn_kv_a_norm = nullptr;  // [r]
  const GgufTensor* attn_k_b = nullptr;        // [Nq][r, H - d]
  const GgufTensor* attn_v_b = nullptr;        // [Nq][value_dim, r]

  // MixerKind::kDeltaNet, which has attn_norm too: KD, VD, Hv, c and d are of DeltaNetSpec. Fused rows go by key head:
  // of qkvz d of q, d of k, then v and z of its value heads; of ba the betas, then the alphas of its value heads.
  const GgufTensor* mix_qkv = nullptr;    // [2 KD + VD, D]: rows of all q, all k, all v; nullptr when fused
  const GgufTensor* mix_z = nullptr;      // [VD, D]; nullptr when fused
  const GgufTensor* mix_qkvz = nullptr;   // [2 KD + 2 VD, D]; nullptr when separate
  const GgufTensor* mix_beta = nullptr;   // [Hv, D]; nullptr when fused
  const GgufTensor* mix_alpha = nullptr;  // [Hv, D]; nullptr when fused
  const GgufTensor* mix_ba = nullptr;     // [2 Hv, D]; nullptr when separate
  const GgufTensor* mix_conv = nullptr;   // [2 KD + VD, c], its last column is of the current row
  const GgufTensor* mix_dt = nullptr;     // [Hv], added to the alphas
  const GgufTensor* mix_decay = nullptr;  // [Hv], negative
  const GgufTensor* mix_norm = nullptr;   // [d], shared by the heads
  const GgufTensor* mix_out = nullptr;    // [D, VD]

  const GgufTensor* ffn_norm = nullptr;       // [D]; nullptr without pre_norms
  const GgufTensor* ffn_gate = nullptr;       // [F, D]; nullptr when fused
  const GgufTensor* ffn_up = nullptr;         // [F, D]
  const GgufTensor* ffn_gate_up = nullptr;    // [2F, D]: rows of gate, then of up; nullptr when separate
  const GgufTensor* ffn_down = nullptr;       // [D, F]
  const GgufTensor* ffn_gate_bias = nullptr;  // [F]
  const GgufTensor* ffn_up_bias = nullptr;    // [F]
  const GgufTensor* ffn_down_bias = nullptr;  // [D]
  const GgufTensor* ffn_post_norm = nullptr;  // [D]; nullptr without post_norms

  // FfnKind::kExperts; ffn_gate, ffn_up and ffn_down are then the shared unit's, of shared_width.
  const GgufTensor* router = nullptr;          // [E, D]
  const GgufTensor* shared_gate = nullptr;     // [D], of FfnSpec::shared_gated
  const GgufTensor* router_bias = nullptr;     // [E], of the logits
  const GgufTensor* selection_bias = nullptr;  // [E], of the choice alone
  const GgufTensor* gate_exps = nullptr;       // [E][F, D]; nullptr when fused
  const GgufTensor* up_exps = nullptr;         // [E][F, D]
  const GgufTensor* gate_up_exps = nullptr;    // [E][2F, D]: rows of gate, then of up; nullptr when separate
  const GgufTensor* down_exps = nullptr;       // [E][D, F]
  const GgufTensor* gate_exps_bias = nullptr;  // [E, F]
  const GgufTensor* up_exps_bias = nullptr;    // [E, F]
  const GgufTensor* down_exps_bias = nullptr;  // [E, D]

  std::vector<const GgufTensor*> All() const;  // those that are not nullptr
};

// A checked model: every tensor that the hyper-parameters call for is there, with the implied shape and an allowed type
// (matrices: any supported one; vectors: F32, F16 or BF16). Thread-safe, immutable.
struct ModelDescription {
  std::shared_ptr<const GgufFile> file;
  HyperParameters hyper;
  const GgufTensor* token_embd = nullptr;   // [V, D]
  const GgufTensor* output_norm = nullptr;  // [D]
  const GgufTensor* output = nullptr;       // [V, D]; the same pointer as token_embd when tied
  const GgufTensor* output_bias = nullptr;  // [V]
  const GgufTensor* rope_freqs = nullptr;   // [rope.dims / 2]
  std::vector<LayerTensors> layers;         // of hyper.layers

  bool tied() const { return output == token_embd; }

  // The tensors that stage [first_layer, last_layer) needs, each once, also a tied embedding on a stage with both ends.
  std::vector<const GgufTensor*> StageTensors(int64_t first_layer, int64_t last_layer, bool owns_embedding,
                                              bool owns_head) const;
};

// Opens `path` and describes it. Unsupported tensor types or architectures: kUnimplemented with the supported list.
absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenModel(const std::string& path,
                                                                  const GgufOpenOptions& options = {});

// Describes an already opened file.
absl::StatusOr<std::shared_ptr<const ModelDescription>> DescribeModel(std::shared_ptr<const GgufFile> file);

// Bytes of one token's K and V in a layer of this attention when they are stored as kv_type. kInvalidArgument for q8_0
// when the head size is no multiple of kKvGroup.
absl::StatusOr<int64_t> KvBytesPerTokenLayer(const AttentionSpec& attention, KvType kv_type);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_MODEL_DESCRIPTION_H_
