#ifndef STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_
#define STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_

// What an architecture's name means beyond the keys of a file: defaults, and which of its optional parts its files
// have. Read when a model is opened; whatever computes goes by LayerSpec.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model/layer_spec.h"

namespace stagecoach {

enum class Presence { kAbsent, kOptional, kRequired };

struct Architecture {
  const char* name;

  // Attention.
  RopePairs pairs = RopePairs::kHalves;
  bool latent = false;
  bool qkv_bias = false;  // required; where it is false they may be there
  QkNorm qk_norm = QkNorm::kNone;
  bool optional_qk_norm = false;  // if the first layer has the tensors
  bool sinks = false;
  bool output_bias = false;             // required, of attn_output
  bool rope_factors = false;            // may have rope_freqs.weight
  int64_t no_rope_step = 0;             // n: layers n-1, 2n-1, ... are not rotated
  bool scale_key = false;               // reads attention.scale
  int64_t layers_of_hidden_scale = 0;   // with so many layers scores are scaled by 1/sqrt(D/Nq): the largest gemmas
  double score_cap = 0, logit_cap = 0;  // where the keys are absent

  // Windows: layer i is windowed if i mod window_period < window_period - 1; period 0: every layer is, if there is a
  // window at all.
  Presence window = Presence::kOptional;
  int64_t window_period = 0;
  int64_t default_window = 0;
  double local_freq_base = 0;   // of windowed layers; 0: as of the others
  bool local_unscaled = false;  // windowed layers have no RoPE scaling

  // Norms. A file calls the norm of an FFN's input ffn_norm, or post_attention_norm.
  bool pre_norms = true, post_norms = false;
  bool ffn_norm_after_attention = false;

  // FFN.
  Activation activation = Activation::kSwiglu;
  bool fused_gate_up = false;  // without an ffn_gate, ffn_up holds the rows of gate, then of up
  Presence experts = Presence::kAbsent;
  Gating gating = Gating::kSoftmax;
  bool gating_key = false;        // reads expert_gating_func
  bool normalized = true;         // where expert_weights_norm is absent
  bool scale_of_weights = false;  // reads expert_weights_scale
  bool shared = false;            // reads expert_shared_count
  Presence selection_bias = Presence::kAbsent;
  bool expert_biases = false;  // required, of router, gate, up and down

  // Scales.
  bool embedding_times_sqrt = false;  // of the hidden size
  bool scale_keys = false;            // reads embedding_scale, residual_scale and logit_scale
};

const Architecture* FindArchitecture(absl::string_view name);  // nullptr: not supported
std::string SupportedArchitectures();                          // "deepseek2, gemma2, ..."

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_ARCHITECTURES_H_
