#include <algorithm>

#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "tests/testing/models/tiny_architectures.h"

namespace stagecoach::testing {
namespace {

// Widths for rows of whole blocks. Without blocks they are even (that is as odd as a row of 16-bit values may be).
void SetWidths(TinyArchitectureOptions* o) {
  const uint32_t block = std::max(GetTensorType(o->type).block_elements, GetTensorType(o->expert_type).block_elements);
  struct Widths {
    int64_t hidden, ffn, heads, head_dim, expert_ffn;
  };
  const Widths widths = block == 1    ? Widths{54, 74, 6, 20, 38}
                        : block <= 32 ? Widths{96, 160, 6, 32, 96}
                                      : Widths{256, 256, 8, 32, 256};
  o->hidden = widths.hidden;
  o->ffn = widths.ffn;
  o->heads = widths.heads;
  o->kv_heads = 2;
  o->head_dim = widths.head_dim;
  o->expert_ffn = widths.expert_ffn;
}

// Olmo 2 and Phi 3 have heads that fill the hidden width exactly.
void FillHiddenWidth(TinyArchitectureOptions* o) {
  if (o->hidden % o->head_dim == 0) {
    o->heads = o->hidden / o->head_dim;
  } else {
    o->hidden = o->heads * (o->head_dim / 2);
    o->head_dim /= 2;
  }
  o->kv_heads = o->heads % 2 == 0 ? 2 : 1;
}

void SetExperts(int64_t experts, int64_t used, TinyArchitectureOptions* o) {
  o->experts = experts;
  o->experts_used = used;
}

void SetLatent(TinyArchitectureOptions* o) {
  const bool odd = o->head_dim % 32 != 0;
  o->heads = odd ? 5 : 4;
  o->kv_heads = o->heads;
  o->head_dim = 0;
  o->q_rank = odd ? 26 : 64;
  o->kv_rank = odd ? 34 : 64;
  o->plain_dim = odd ? 14 : 32;
  o->rotated = odd ? 10 : 16;
  o->value_dim = odd ? 18 : 32;
}

// Every third layer has attention, and the first and the last one have none.
void SetDeltaNets(TinyArchitectureOptions* o) {
  const bool odd = o->head_dim % 32 != 0, superblocks = o->hidden == 256;
  o->layers = 4;
  o->interval = 3;
  o->delta_key_heads = 2;
  o->delta_value_heads = superblocks ? 8 : 6;
  o->delta_head_dim = odd ? 10 : 32;
  o->rotated = o->head_dim / 2;
  o->qk_norms = o->renamed_ffn_norm = true;
  if (o->architecture == "qwen3next") {
    o->fused_beta_alpha = true;
  } else {
    const auto pairs = static_cast<int32_t>(o->rotated / 2);
    o->sections = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  }
}

void SetYarn(double factor, int64_t original, TinyArchitectureOptions* o) {
  o->rope_scaling = "yarn";
  o->rope_factor = factor;
  o->original_context = original;
}

void SetExpertArchitecture(TinyArchitectureOptions* o) {
  const std::string& name = o->architecture;
  if (name == "qwen3moe") {
    SetExperts(8, 2, o);
    o->qk_norms = true;
    o->freq_base = 1e6;
  } else if (name == "gpt-oss") {
    SetExperts(8, 2, o);
    o->tied = false;
    o->qkv_biases = o->output_bias = o->router_bias = o->expert_biases = o->sinks = o->renamed_ffn_norm = true;
    o->window = 16;
    o->freq_base = 150000;
    o->expert_gain = 4;
    SetYarn(8, 64, o);
  } else if (name == "glm4moe") {
    SetExperts(8, 2, o);
    o->tied = false;
    o->qkv_biases = o->qk_norms = o->renamed_ffn_norm = o->selection_bias = o->weights_norm = o->nextn = true;
    o->rotated = o->head_dim / 2;
    o->shared_experts = o->dense_lead = 1;
    o->weights_scale = 1.5;
    o->gating = 2;
  } else if (name == "deepseek2") {
    SetExperts(8, 2, o);
    SetLatent(o);
    o->tied = false;
    o->selection_bias = o->weights_norm = true;
    o->shared_experts = 2;
    o->dense_lead = 1;
    o->groups = 4;
    o->groups_used = 2;
    o->weights_scale = 2.5;
    o->gating = 2;
    o->yarn_log_multiplier = 0.1;
    SetYarn(8, 64, o);
  } else if (name == "minimax-m2") {
    SetExperts(8, 2, o);
    o->tied = false;
    o->qk_norms = o->whole_norms = o->selection_bias = true;
    o->rotated = o->head_dim / 2;
    o->gating = 2;
    o->ffn = o->expert_ffn;
  } else if (name == "qwen35moe" || name == "qwen3next") {
    SetExperts(8, 2, o);
    SetDeltaNets(o);
    o->shared_experts = 1;
  } else if (name == "mixtral") {
    SetExperts(5, 2, o);
    o->tied = false;
  }
}

void SetDenseArchitecture(TinyArchitectureOptions* o) {
  const std::string& name = o->architecture;
  if (name == "gemma2") {
    o->post_norms = true;
    o->window = 16;
    o->attention_cap = 3;
    o->logit_cap = 4;
  } else if (name == "gemma3") {
    o->post_norms = o->qk_norms = true;
    o->window = 16;
    o->layers = 6;  // the last one of six sees everything
    o->freq_base = 1e6;
    o->rope_scaling = "linear";
    o->rope_factor = 8;
  } else if (name == "phi3") {
    FillHiddenWidth(o);
    o->tied = false;
    o->fused_qkv = o->fused_ffn = true;
    o->original_context = 64;
    o->rope_attention_factor = 1.19;
  } else if (name == "granite") {
    o->attention_scale = 0.15;
    o->embedding_scale = 6;
    o->residual_scale = 0.4;
    o->logit_scale = 2;
  } else if (name == "olmo2") {
    FillHiddenWidth(o);
    o->tied = o->pre_norms = false;
    o->qk_norms = o->whole_norms = o->post_norms = true;
  } else if (name == "smollm3") {
    o->layers = 4;  // every fourth is not rotated
  } else if (name == "qwen2") {
    o->qkv_biases = true;
  } else if (name == "qwen35") {
    SetDeltaNets(o);
    o->tied = false;
    o->nextn = true;
  } else if (name == "qwen3") {
    o->qk_norms = true;
  } else {
    CHECK(name == "llama");
    o->tied = false;
  }
}

}  // namespace

const std::vector<std::string>& TinyArchitectureNames() {
  static const std::vector<std::string> names = {"qwen3moe", "gpt-oss", "glm4moe", "deepseek2", "minimax-m2",
                                                 "mixtral",  "gemma2",  "gemma3",  "phi3",      "granite",
                                                 "olmo2",    "smollm3", "llama",   "qwen2",     "qwen3"};
  return names;
}

const std::vector<std::string>& TinyExpertArchitectureNames() {
  static const std::vector<std::string> names = {"qwen3moe", "gpt-oss", "glm4moe", "deepseek2", "minimax-m2"};
  return names;
}

const std::vector<std::string>& TinyRecurrentArchitectureNames() {
  static const std::vector<std::string> names = {"qwen35", "qwen35moe", "qwen3next"};
  return names;
}

std::string ArchitectureTestName(const ::testing::TestParamInfo<std::string>& architecture) {
  return absl::StrReplaceAll(architecture.param, {{"-", "_"}});
}

TinyArchitectureOptions TinyArchitecture(const std::string& architecture, TensorType type) {
  return TinyArchitecture(architecture, type, type);
}

TinyArchitectureOptions TinyArchitecture(const std::string& architecture, TensorType type, TensorType expert_type) {
  TinyArchitectureOptions options = {.architecture = architecture,
                                     .layers = 3,
                                     .vocab = 301,
                                     .type = type,
                                     .expert_type = expert_type,
                                     .seed = 7,
                                     .lively = true};
  SetWidths(&options);
  SetExpertArchitecture(&options);
  if (options.experts == 0) SetDenseArchitecture(&options);
  if (architecture == "mixtral") options.architecture = "llama";  // as its files call it
  return options;
}

}  // namespace stagecoach::testing
