#include "common/gguf/model_shapes.h"

namespace stagecoach {
namespace {

constexpr ShapeForm kLlama = {.architecture = "llama"};
constexpr ShapeForm kQwen2 = {.architecture = "qwen2", .qkv_bias = true};
constexpr ShapeForm kQwen3 = {.architecture = "qwen3"};
constexpr ShapeForm kQwen3Moe = {.architecture = "qwen3moe"};
constexpr ShapeForm kGptOss = {.architecture = "gpt-oss",
                               .norms = ShapeNorms::kInputsAsPost,
                               .qkv_bias = true,
                               .output_bias = true,
                               .sinks = true,
                               .expert_bias = true};
constexpr ShapeForm kGlm4Moe = {.architecture = "glm4moe", .norms = ShapeNorms::kInputsAsPost, .qkv_bias = true};
constexpr ShapeForm kDeepSeek2 = {.architecture = "deepseek2"};
constexpr ShapeForm kMiniMaxM2 = {.architecture = "minimax-m2"};
constexpr ShapeForm kGemma2 = {.architecture = "gemma2", .norms = ShapeNorms::kInputsOutputs};
constexpr ShapeForm kGemma3 = {.architecture = "gemma3", .norms = ShapeNorms::kInputsOutputs};
constexpr ShapeForm kPhi3 = {
    .architecture = "phi3", .fused = true, .head_dim_keys = false, .rope_dim_key = true, .original_context_key = true};
constexpr ShapeForm kGranite = {.architecture = "granite", .head_dim_keys = false, .rope_dim_key = true};
constexpr ShapeForm kOlmo2 = {.architecture = "olmo2", .norms = ShapeNorms::kOutputs, .head_dim_keys = false};
constexpr ShapeForm kSmolLm3 = {.architecture = "smollm3", .head_dim_keys = false, .rope_dim_key = true};

constexpr ShapeNumbers kGemma2Caps = {{{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}}};

constexpr ShapeNumbers Granite(double attention_scale, double logit_scale) {
  return {{{"attention.scale", attention_scale},
           {"embedding_scale", 12},
           {"residual_scale", 0.22},
           {"logit_scale", logit_scale}}};
}

constexpr ModelShape Shape(const char* name, const ShapeForm& form, int64_t layers, int64_t hidden, int64_t ffn,
                           int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t vocab, int64_t context,
                           double rms_eps, double freq_base, const char* pre_tokenizer, ModelShape rest = {}) {
  rest.name = name;
  rest.form = form;
  rest.layers = layers;
  rest.hidden = hidden;
  rest.ffn = ffn;
  rest.heads = heads;
  rest.kv_heads = kv_heads;
  rest.head_dim = head_dim;
  rest.vocab = vocab;
  rest.context = context;
  rest.rms_eps = rms_eps;
  rest.rope.freq_base = freq_base;
  rest.pre_tokenizer = pre_tokenizer;
  return rest;
}

// Name, form, layers, hidden, FFN, heads, KV heads, head size, vocabulary, context, epsilon, RoPE base, pre-tokenizer,
// and what else there is. As their authors publish them, and as the programs that convert them write it down.
constexpr ModelShape kShapes[] = {
    Shape("tiny", kQwen3, 3, 256, 512, 4, 2, 64, 1000, 2048, 1e-6, 1e6, "qwen2",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads}),
    Shape("qwen2.5-0.5b", kQwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, "qwen2", {.tied = true}),
    Shape("qwen3-0.6b", kQwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads}),
    Shape("gemma-3-1b", kGemma3, 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1e-6, 1e6, "default",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads, .window = 512, .tokenizer = "llama"}),
    Shape("llama-3.2-1b", kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 1e-5, 5e5, "llama-bpe", {.tied = true}),
    Shape("qwen3-1.7b", kQwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads}),
    Shape(
        "granite-3.3-2b", kGranite, 40, 2048, 8192, 32, 8, 64, 49159, 131072, 1e-5, 1e7, "refact",
        {.tied = true, .numbers = Granite(0.015625, 8), .unverified = "vocabulary (3.1 has 49155), width of the FFN"}),
    Shape("gemma-2-2b", kGemma2, 26, 2304, 9216, 8, 4, 256, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama"}),
    Shape("smollm3-3b", kSmolLm3, 36, 2048, 11008, 16, 4, 128, 128256, 65536, 1e-6, 5e6, "smaug-bpe",
          {.tied = true, .unverified = "pre-tokenizer"}),
    Shape("phi-3-mini-4k", kPhi3, 32, 3072, 8192, 32, 32, 96, 32064, 4096, 1e-5, 1e4, "default",
          {.window = 2047, .tokenizer = "llama"}),
    Shape("gemma-3-4b", kGemma3, 34, 2560, 10240, 8, 4, 256, 262144, 131072, 1e-6, 1e6, "default",
          {.tied = true,
           .qk_norm = ShapeQkNorm::kHeads,
           .rope = {.scaling = "linear", .factor = 8},
           .window = 1024,
           .tokenizer = "llama"}),
    Shape("qwen3-4b", kQwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads}),
    Shape("mistral-7b-v0.3", kLlama, 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e-5, 1e6, "default",
          {.tokenizer = "llama", .unverified = "vocabulary"}),
    Shape("olmo-2-7b", kOlmo2, 32, 4096, 11008, 32, 32, 128, 100352, 4096, 1e-6, 5e5, "dbrx",
          {.qk_norm = ShapeQkNorm::kWhole, .unverified = "pre-tokenizer"}),
    Shape("llama-3.1-8b", kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 1e-5, 5e5, "llama-bpe"),
    Shape("granite-3.3-8b", kGranite, 40, 4096, 12800, 32, 8, 128, 49159, 131072, 1e-5, 1e7, "refact",
          {.tied = true,
           .numbers = Granite(0.0078125, 16),
           .unverified = "vocabulary (3.1 has 49155), width of the FFN"}),
    Shape("qwen3-8b", kQwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads}),
    Shape("gemma-2-9b", kGemma2, 42, 3584, 14336, 16, 8, 256, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama", .unverified = "sizes"}),
    Shape("gemma-3-12b", kGemma3, 48, 3840, 15360, 16, 8, 256, 262144, 131072, 1e-6, 1e6, "default",
          {.tied = true,
           .qk_norm = ShapeQkNorm::kHeads,
           .rope = {.scaling = "linear", .factor = 8},
           .window = 1024,
           .tokenizer = "llama"}),
    Shape("olmo-2-13b", kOlmo2, 40, 5120, 13824, 40, 40, 128, 100352, 4096, 1e-6, 5e5, "dbrx",
          {.qk_norm = ShapeQkNorm::kWhole, .unverified = "pre-tokenizer"}),
    Shape("phi-4", kPhi3, 40, 5120, 17920, 40, 10, 128, 100352, 16384, 1e-5, 2.5e5, "dbrx",
          {.window = 0, .unverified = "base of RoPE, pre-tokenizer"}),
    Shape("qwen3-14b", kQwen3, 40, 5120, 17408, 40, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads}),
    Shape("deepseek-v2-lite", kDeepSeek2, 27, 2048, 10944, 16, 1, 192, 102400, 163840, 1e-6, 1e4, "deepseek-llm",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 40, .original_context = 4096, .log_multiplier = 0.0707},
           .experts = {.count = 64,
                       .used = 6,
                       .width = 1408,
                       .shared = 2,
                       .dense_lead = 1,
                       .groups = 1,
                       .groups_used = 1,
                       .gating = 1,
                       .weights_scale = 1,
                       .weights_norm = false},
           .latent = {.kv_rank = 512, .value_dim = 128}}),
    Shape("gpt-oss-20b", kGptOss, 24, 2880, 2880, 64, 8, 64, 201088, 131072, 1e-5, 1.5e5, "gpt-4o",
          {.rope = {.scaling = "yarn", .factor = 32, .original_context = 4096},
           .window = 128,
           .experts = {.count = 32, .used = 4, .width = 2880}}),
    Shape("gemma-3-27b", kGemma3, 62, 5376, 21504, 32, 16, 128, 262144, 131072, 1e-6, 1e6, "default",
          {.tied = true,
           .qk_norm = ShapeQkNorm::kHeads,
           .rope = {.scaling = "linear", .factor = 8},
           .window = 1024,
           .tokenizer = "llama"}),
    Shape("gemma-2-27b", kGemma2, 46, 4608, 36864, 32, 16, 128, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama"}),
    Shape("glm-4.7-flash", kDeepSeek2, 47, 2048, 10240, 20, 1, 256, 154880, 202752, 1e-5, 1e6, "glm4",
          {.rope = {.dims = 64},
           .experts = {.count = 64,
                       .used = 4,
                       .width = 1536,
                       .shared = 1,
                       .dense_lead = 1,
                       .groups = 1,
                       .groups_used = 1,
                       .gating = 2,
                       .weights_scale = 1.8,
                       .weights_norm = true},
           .latent = {.q_rank = 768, .kv_rank = 512, .value_dim = 256},
           .unverified = "expert_gating_func, which early files lack"}),
    Shape("qwen3-30b-a3b", kQwen3Moe, 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads, .experts = {.count = 128, .used = 8, .width = 768}}),
    Shape("qwen3-32b", kQwen3, 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads}),
    Shape("llama-3.1-70b", kLlama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, 1e-5, 5e5, "llama-bpe"),
    Shape("glm-4.5-air", kGlm4Moe, 46, 4096, 10944, 96, 8, 128, 151552, 131072, 1e-5, 1e6, "glm4",
          {.nextn = 1,
           .rope = {.dims = 64},
           .experts = {.count = 128,
                       .used = 8,
                       .width = 1408,
                       .shared = 1,
                       .dense_lead = 1,
                       .groups = 1,
                       .groups_used = 1,
                       .gating = 2,
                       .weights_scale = 1,
                       .weights_norm = true}}),
    Shape("gpt-oss-120b", kGptOss, 36, 2880, 2880, 64, 8, 64, 201088, 131072, 1e-5, 1.5e5, "gpt-4o",
          {.rope = {.scaling = "yarn", .factor = 32, .original_context = 4096},
           .window = 128,
           .experts = {.count = 128, .used = 4, .width = 2880}}),
    Shape("minimax-m2", kMiniMaxM2, 62, 3072, 1536, 48, 8, 128, 200064, 196608, 1e-6, 5e6, "minimax-m2",
          {.qk_norm = ShapeQkNorm::kWhole,
           .rope = {.dims = 64},
           .experts = {.count = 256, .used = 8, .width = 1536, .gating = 2}}),
    Shape("qwen3-235b-a22b", kQwen3Moe, 94, 4096, 12288, 64, 4, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads, .experts = {.count = 128, .used = 8, .width = 1536}}),
    Shape("glm-4.5", kGlm4Moe, 92, 5120, 12288, 96, 8, 128, 151552, 131072, 1e-5, 1e6, "glm4",
          {.nextn = 1,
           .qk_norm = ShapeQkNorm::kHeads,
           .rope = {.dims = 64},
           .experts = {.count = 160,
                       .used = 8,
                       .width = 1536,
                       .shared = 1,
                       .dense_lead = 3,
                       .groups = 1,
                       .groups_used = 1,
                       .gating = 2,
                       .weights_scale = 2.5,
                       .weights_norm = true}}),
    Shape("qwen3-coder-480b-a35b", kQwen3Moe, 62, 6144, 8192, 96, 8, 128, 151936, 262144, 1e-6, 1e7, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads, .experts = {.count = 160, .used = 8, .width = 2560}}),
    Shape("deepseek-v3", kDeepSeek2, 61, 7168, 18432, 128, 1, 192, 129280, 163840, 1e-6, 1e4, "deepseek-v3",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 40, .original_context = 4096, .log_multiplier = 0.1},
           .experts = {.count = 256,
                       .used = 8,
                       .width = 2048,
                       .shared = 1,
                       .dense_lead = 3,
                       .groups = 8,
                       .groups_used = 4,
                       .gating = 2,
                       .weights_scale = 2.5,
                       .weights_norm = true},
           .latent = {.q_rank = 1536, .kv_rank = 512, .value_dim = 128}}),
    Shape("kimi-k2", kDeepSeek2, 61, 7168, 18432, 64, 1, 192, 163840, 131072, 1e-6, 5e4, "kimi-k2",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 32, .original_context = 4096, .log_multiplier = 0.1},
           .experts = {.count = 384,
                       .used = 8,
                       .width = 2048,
                       .shared = 1,
                       .dense_lead = 1,
                       .groups = 1,
                       .groups_used = 1,
                       .gating = 2,
                       .weights_scale = 2.827,
                       .weights_norm = true},
           .latent = {.q_rank = 1536, .kv_rank = 512, .value_dim = 128},
           .unverified = "epsilon: K2.5 has 1e-5"}),
};

}  // namespace

absl::Span<const ModelShape> ModelShapes() { return kShapes; }

}  // namespace stagecoach
