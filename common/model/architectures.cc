#include "common/model/architectures.h"

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr Architecture kArchitectures[] = {
    {.name = "deepseek2",
     .pairs = RopePairs::kAdjacent,
     .latent = true,
     .window = Presence::kAbsent,
     .experts = Presence::kOptional,
     .gating_key = true,
     .normalized = false,
     .scale_of_weights = true,
     .shared = true,
     .selection_bias = Presence::kOptional},
    {.name = "gemma2",
     .layers_of_hidden_scale = 46,
     .score_cap = 50,
     .logit_cap = 30,
     .window_period = 2,
     .default_window = 4096,
     .post_norms = true,
     .activation = Activation::kGeglu,
     .embedding_times_sqrt = true},
    {.name = "gemma3",
     .qk_norm = QkNorm::kHeads,
     .layers_of_hidden_scale = 62,
     .window = Presence::kRequired,
     .window_period = 6,
     .local_freq_base = 10000,
     .local_unscaled = true,
     .post_norms = true,
     .activation = Activation::kGeglu,
     .embedding_times_sqrt = true},
    {.name = "glm4moe",
     .qk_norm = QkNorm::kHeads,
     .optional_qk_norm = true,
     .window = Presence::kAbsent,
     .ffn_norm_after_attention = true,
     .experts = Presence::kRequired,
     .gating = Gating::kSigmoid,
     .gating_key = true,
     .normalized = false,
     .scale_of_weights = true,
     .shared = true,
     .selection_bias = Presence::kRequired},
    {.name = "gpt-oss",
     .qkv_bias = true,
     .sinks = true,
     .output_bias = true,
     .window = Presence::kRequired,
     .window_period = 2,
     .ffn_norm_after_attention = true,
     .activation = Activation::kClampedSwiglu,
     .experts = Presence::kRequired,
     .gating = Gating::kSoftmaxOfChosen,
     .normalized = false,
     .expert_biases = true},
    {.name = "granite",
     .pairs = RopePairs::kAdjacent,
     .rope_factors = true,
     .scale_key = true,
     .window = Presence::kAbsent,
     .scale_keys = true},
    {.name = "llama", .pairs = RopePairs::kAdjacent, .rope_factors = true, .experts = Presence::kOptional},
    {.name = "minimax-m2",
     .qk_norm = QkNorm::kWhole,
     .window = Presence::kAbsent,
     .experts = Presence::kRequired,
     .gating = Gating::kSigmoid,
     .gating_key = true,
     .selection_bias = Presence::kRequired},
    {.name = "olmo2",
     .qk_norm = QkNorm::kWhole,
     .window_period = 4,
     .local_unscaled = true,
     .pre_norms = false,
     .post_norms = true},
    {.name = "phi3", .fused_gate_up = true},
    {.name = "qwen2", .qkv_bias = true, .window = Presence::kAbsent},
    {.name = "qwen3", .qk_norm = QkNorm::kHeads, .window = Presence::kAbsent},
    {.name = "qwen35",
     .qk_norm = QkNorm::kHeads,
     .window = Presence::kAbsent,
     .delta_net = true,
     .ffn_norm_after_attention = true},
    {.name = "qwen35moe",
     .qk_norm = QkNorm::kHeads,
     .window = Presence::kAbsent,
     .delta_net = true,
     .ffn_norm_after_attention = true,
     .experts = Presence::kRequired,
     .scale_of_weights = true},
    {.name = "qwen3moe", .qk_norm = QkNorm::kHeads, .window = Presence::kAbsent, .experts = Presence::kRequired},
    {.name = "qwen3next",
     .qk_norm = QkNorm::kHeads,
     .window = Presence::kAbsent,
     .delta_net = true,
     .grouped_value_heads = true,
     .ffn_norm_after_attention = true,
     .experts = Presence::kRequired,
     .scale_of_weights = true},
    {.name = "smollm3", .pairs = RopePairs::kAdjacent, .no_rope_step = 4, .window = Presence::kAbsent},
};

}  // namespace

const Architecture* FindArchitecture(absl::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

std::string SupportedArchitectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", architecture.name);
  }
  return names;
}

}  // namespace stagecoach
