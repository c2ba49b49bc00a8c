#include "common/gguf/model_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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
constexpr ShapeForm kQwen35 = {.architecture = "qwen35", .norms = ShapeNorms::kInputsAsPost, .sections = true};
constexpr ShapeForm kQwen35Moe = {.architecture = "qwen35moe", .norms = ShapeNorms::kInputsAsPost, .sections = true};
constexpr ShapeForm kQwen3Next = {
    .architecture = "qwen3next", .norms = ShapeNorms::kInputsAsPost, .fused_beta_alpha = true};

constexpr ModelShape kHeadNorms = {.qk_norm = ShapeQkNorm::kHeads};
constexpr ModelShape kTiedWithHeadNorms = {.tied = true, .qk_norm = ShapeQkNorm::kHeads};
constexpr ModelShape kGemma3Rest = {.tied = true,
                                    .qk_norm = ShapeQkNorm::kHeads,
                                    .rope = {.scaling = "linear", .factor = 8},
                                    .window = 1024,
                                    .tokenizer = "llama"};

constexpr ShapeNumbers kGemma2Caps = {{{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}}};

constexpr ShapeNumbers Granite(double attention_scale, double logit_scale) {
  return {{{"attention.scale", attention_scale},
           {"embedding_scale", 12},
           {"residual_scale", 0.22},
           {"logit_scale", logit_scale}}};
}

constexpr ModelShape GptOss(int64_t experts) {
  return {.rope = {.scaling = "yarn", .factor = 32, .original_context = 4096},
          .window = 128,
          .experts = {.count = experts, .used = 4, .width = 2880}};
}

// With so many value heads; key heads are 16 in all.
constexpr ModelShape DeltaNets(int64_t value_heads, ShapeExperts experts = {}) {
  return {.qk_norm = ShapeQkNorm::kHeads,
          .rope = {.dims = 64},
          .experts = experts,
          .delta_net = {.key_heads = 16, .value_heads = value_heads}};
}

constexpr ModelShape Qwen35(int64_t value_heads, bool tied, const char* unverified = nullptr, int64_t nextn = 0) {
  ModelShape rest = DeltaNets(value_heads);
  rest.nextn = nextn;
  rest.tied = tied;
  rest.unverified = unverified;
  return rest;
}

constexpr ModelShape Qwen35Moe(int64_t value_heads, int64_t experts, int64_t used, int64_t width, int64_t nextn = 0) {
  ModelShape rest = DeltaNets(value_heads, {.count = experts, .used = used, .width = width, .shared = 1});
  rest.nextn = nextn;
  return rest;
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
// and what else there is; of experts that say all: count, used, width, shared, dense lead, groups, groups used, gating,
// scale and norm of the weights. As their authors publish them, and as the programs that convert them write it down.
constexpr ModelShape kShapes[] = {
    Shape("tiny", kQwen3, 3, 256, 512, 4, 2, 64, 1000, 2048, 1e-6, 1e6, "qwen2", kTiedWithHeadNorms),
    Shape("qwen2.5-0.5b", kQwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, "qwen2", {.tied = true}),
    Shape("qwen3-0.6b", kQwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kTiedWithHeadNorms),
    Shape("qwen3.5-0.8b", kQwen35, 24, 1024, 3584, 8, 2, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35(16, true, "sizes")),
    Shape("gemma-3-1b", kGemma3, 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1e-6, 1e6, "default",
          {.tied = true, .qk_norm = ShapeQkNorm::kHeads, .window = 512, .tokenizer = "llama"}),
    Shape("llama-3.2-1b", kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 1e-5, 5e5, "llama-bpe", {.tied = true}),
    Shape("qwen3-1.7b", kQwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kTiedWithHeadNorms),
    Shape("qwen3.5-2b", kQwen35, 24, 2048, 6144, 8, 2, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35(16, true, "that the output is tied", 1)),
    Shape(
        "granite-3.3-2b", kGranite, 40, 2048, 8192, 32, 8, 64, 49159, 131072, 1e-5, 1e7, "refact",
        {.tied = true, .numbers = Granite(0.015625, 8), .unverified = "vocabulary (3.1 has 49155), width of the FFN"}),
    Shape("gemma-2-2b", kGemma2, 26, 2304, 9216, 8, 4, 256, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama"}),
    Shape("smollm3-3b", kSmolLm3, 36, 2048, 11008, 16, 4, 128, 128256, 65536, 1e-6, 5e6, "smaug-bpe",
          {.tied = true, .unverified = "pre-tokenizer"}),
    Shape("phi-3-mini-4k", kPhi3, 32, 3072, 8192, 32, 32, 96, 32064, 4096, 1e-5, 1e4, "default",
          {.window = 2047, .tokenizer = "llama"}),
    Shape("gemma-3-4b", kGemma3, 34, 2560, 10240, 8, 4, 256, 262144, 131072, 1e-6, 1e6, "default", kGemma3Rest),
    Shape("qwen3-4b", kQwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kTiedWithHeadNorms),
    Shape("qwen3.5-4b", kQwen35, 32, 2560, 9216, 16, 4, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35(32, true, "that the output is tied")),
    Shape("mistral-7b-v0.3", kLlama, 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e-5, 1e6, "default",
          {.tokenizer = "llama", .unverified = "vocabulary"}),
    Shape("olmo-2-7b", kOlmo2, 32, 4096, 11008, 32, 32, 128, 100352, 4096, 1e-6, 5e5, "dbrx",
          {.qk_norm = ShapeQkNorm::kWhole, .unverified = "pre-tokenizer"}),
    Shape("llama-3.1-8b", kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 1e-5, 5e5, "llama-bpe"),
    Shape("granite-3.3-8b", kGranite, 40, 4096, 12800, 32, 8, 128, 49159, 131072, 1e-5, 1e7, "refact",
          {.tied = true,
           .numbers = Granite(0.0078125, 16),
           .unverified = "vocabulary (3.1 has 49155), width of the FFN"}),
    Shape("qwen3-8b", kQwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kHeadNorms),
    Shape("qwen3.5-9b", kQwen35, 32, 4096, 12288, 16, 4, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35(32, false, "that the output is not tied")),
    Shape("gemma-2-9b", kGemma2, 42, 3584, 14336, 16, 8, 256, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama", .unverified = "sizes"}),
    Shape("gemma-3-12b", kGemma3, 48, 3840, 15360, 16, 8, 256, 262144, 131072, 1e-6, 1e6, "default", kGemma3Rest),
    Shape("olmo-2-13b", kOlmo2, 40, 5120, 13824, 40, 40, 128, 100352, 4096, 1e-6, 5e5, "dbrx",
          {.qk_norm = ShapeQkNorm::kWhole, .unverified = "pre-tokenizer"}),
    Shape("phi-4", kPhi3, 40, 5120, 17920, 40, 10, 128, 100352, 16384, 1e-5, 2.5e5, "dbrx",
          {.window = 0, .unverified = "base of RoPE, pre-tokenizer"}),
    Shape("qwen3-14b", kQwen3, 40, 5120, 17408, 40, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kHeadNorms),
    Shape("deepseek-v2-lite", kDeepSeek2, 27, 2048, 10944, 16, 1, 192, 102400, 163840, 1e-6, 1e4, "deepseek-llm",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 40, .original_context = 4096, .log_multiplier = 0.0707},
           .experts = {64, 6, 1408, 2, 1, 1, 1, 1, 1, false},
           .latent = {.kv_rank = 512, .value_dim = 128}}),
    Shape("gpt-oss-20b", kGptOss, 24, 2880, 2880, 64, 8, 64, 201088, 131072, 1e-5, 1.5e5, "gpt-4o", GptOss(32)),
    Shape("gemma-3-27b", kGemma3, 62, 5376, 21504, 32, 16, 128, 262144, 131072, 1e-6, 1e6, "default", kGemma3Rest),
    Shape("qwen3.5-27b", kQwen35, 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e-6, 1e7, "qwen35", Qwen35(48, false)),
    Shape("gemma-2-27b", kGemma2, 46, 4608, 36864, 32, 16, 128, 256000, 8192, 1e-6, 0, "default",
          {.tied = true, .window = 4096, .numbers = kGemma2Caps, .tokenizer = "llama"}),
    Shape("glm-4.7-flash", kDeepSeek2, 47, 2048, 10240, 20, 1, 256, 154880, 202752, 1e-5, 1e6, "glm4",
          {.rope = {.dims = 64},
           .experts = {64, 4, 1536, 1, 1, 1, 1, 2, 1.8, true},
           .latent = {.q_rank = 768, .kv_rank = 512, .value_dim = 256},
           .unverified = "expert_gating_func, which early files lack"}),
    Shape("qwen3-30b-a3b", kQwen3Moe, 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e-6, 1e6, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads, .experts = {.count = 128, .used = 8, .width = 768}}),
    Shape("qwen3.5-35b-a3b", kQwen35Moe, 40, 2048, 0, 16, 2, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35Moe(32, 256, 8, 512, 1)),
    Shape("qwen3-32b", kQwen3, 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e-6, 1e6, "qwen2", kHeadNorms),
    Shape("llama-3.1-70b", kLlama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, 1e-5, 5e5, "llama-bpe"),
    Shape("qwen3-next-80b-a3b", kQwen3Next, 48, 2048, 5120, 16, 2, 256, 151936, 262144, 1e-6, 1e7, "qwen2",
          Qwen35Moe(32, 512, 10, 512)),
    Shape("glm-4.5-air", kGlm4Moe, 46, 4096, 10944, 96, 8, 128, 151552, 131072, 1e-5, 1e6, "glm4",
          {.nextn = 1, .rope = {.dims = 64}, .experts = {128, 8, 1408, 1, 1, 1, 1, 2, 1, true}}),
    Shape("gpt-oss-120b", kGptOss, 36, 2880, 2880, 64, 8, 64, 201088, 131072, 1e-5, 1.5e5, "gpt-4o", GptOss(128)),
    Shape("qwen3.5-122b-a10b", kQwen35Moe, 48, 3072, 0, 32, 2, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35Moe(64, 256, 8, 1024)),
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
           .experts = {160, 8, 1536, 1, 3, 1, 1, 2, 2.5, true}}),
    Shape("qwen3.5-397b-a17b", kQwen35Moe, 60, 4096, 0, 32, 2, 256, 248320, 262144, 1e-6, 1e7, "qwen35",
          Qwen35Moe(64, 512, 10, 1024)),
    Shape("qwen3-coder-480b-a35b", kQwen3Moe, 62, 6144, 8192, 96, 8, 128, 151936, 262144, 1e-6, 1e7, "qwen2",
          {.qk_norm = ShapeQkNorm::kHeads, .experts = {.count = 160, .used = 8, .width = 2560}}),
    Shape("deepseek-v3", kDeepSeek2, 61, 7168, 18432, 128, 1, 192, 129280, 163840, 1e-6, 1e4, "deepseek-v3",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 40, .original_context = 4096, .log_multiplier = 0.1},
           .experts = {256, 8, 2048, 1, 3, 8, 4, 2, 2.5, true},
           .latent = {.q_rank = 1536, .kv_rank = 512, .value_dim = 128}}),
    Shape("kimi-k2", kDeepSeek2, 61, 7168, 18432, 64, 1, 192, 163840, 131072, 1e-6, 5e4, "kimi-k2",
          {.rope = {.dims = 64, .scaling = "yarn", .factor = 32, .original_context = 4096, .log_multiplier = 0.1},
           .experts = {384, 8, 2048, 1, 1, 1, 1, 2, 2.827, true},
           .latent = {.q_rank = 1536, .kv_rank = 512, .value_dim = 128},
           .unverified = "epsilon: K2.5 has 1e-5"}),
};

// Adds keys below the architecture's prefix.
class Keys {
 public:
  explicit Keys(const ModelShape& shape) : shape_(shape) {
    keys_.emplace_back("general.architecture", std::string(shape.form.architecture));
  }

  std::vector<std::pair<std::string, GgufValue>> All() {
    Sizes();
    Attention();
    Rope();
    if (shape_.has_delta_nets()) DeltaNets();
    if (shape_.experts.count > 0) Experts();
    if (shape_.nextn > 0) Int("nextn_predict_layers", shape_.nextn);
    for (const ShapeNumber& number : shape_.numbers) {
      if (number.key != nullptr) Float(number.key, number.value);
    }
    return std::move(keys_);
  }

 private:
  void Set(const char* name, GgufValue value) {
    keys_.emplace_back(absl::StrCat(shape_.form.architecture, ".", name), std::move(value));
  }
  void Int(const char* name, int64_t value) { Set(name, static_cast<uint64_t>(value)); }
  void IntUnlessZero(const char* name, int64_t value) {
    if (value != 0) Int(name, value);
  }
  void Float(const char* name, double value) { Set(name, value); }
  void FloatUnlessZero(const char* name, double value) {
    if (value != 0) Float(name, value);
  }

  void Sizes() {
    Int("block_count", shape_.blocks());
    Int("context_length", shape_.context);
    Int("embedding_length", shape_.hidden);
    IntUnlessZero("feed_forward_length", shape_.ffn);
    Int("vocab_size", shape_.vocab);
  }

  void Attention() {
    const ShapeLatent& latent = shape_.latent;
    Int("attention.head_count", shape_.heads);
    Int("attention.head_count_kv", shape_.kv_heads);
    if (shape_.has_latent()) {  // as of one KV head, whose rows are cached
      IntUnlessZero("attention.q_lora_rank", latent.q_rank);
      Int("attention.kv_lora_rank", latent.kv_rank);
      Int("attention.key_length", latent.kv_rank + shape_.rope.dims);
      Int("attention.value_length", latent.kv_rank);
      Int("attention.key_length_mla", shape_.head_dim);
      Int("attention.value_length_mla", latent.value_dim);
    } else if (shape_.form.head_dim_keys) {
      Int("attention.key_length", shape_.head_dim);
      Int("attention.value_length", shape_.head_dim);
    }
    Float("attention.layer_norm_rms_epsilon", shape_.rms_eps);
    if (shape_.window.has_value()) Int("attention.sliding_window", *shape_.window);
  }

  void Rope() {
    const ShapeRope& rope = shape_.rope;
    FloatUnlessZero("rope.freq_base", rope.freq_base);
    IntUnlessZero("rope.dimension_count", shape_.form.rope_dim_key ? shape_.head_dim : rope.dims);
    if (rope.scaling != nullptr) Set("rope.scaling.type", std::string(rope.scaling));
    FloatUnlessZero("rope.scaling.factor", rope.factor);
    IntUnlessZero("rope.scaling.original_context_length",
                  shape_.form.original_context_key ? shape_.context : rope.original_context);
    FloatUnlessZero("rope.scaling.yarn_log_multiplier", rope.log_multiplier);
  }

  void DeltaNets() {
    const ShapeDeltaNet& net = shape_.delta_net;
    if (shape_.form.sections) {
      const auto third = [&](int64_t first) { return (shape_.rope.dims / 2 - first + 2) / 3; };
      const std::vector<int64_t> sections = {third(0), third(1), third(2), 0};
      Set("rope.dimension_sections", GgufArray{static_cast<uint32_t>(GgufValueType::kI32), sections});
    }
    Int("ssm.conv_kernel", net.conv_kernel);
    Int("ssm.state_size", net.head_dim);
    Int("ssm.group_count", net.key_heads);
    Int("ssm.time_step_rank", net.value_heads);
    Int("ssm.inner_size", net.value_heads * net.head_dim);
    Int("full_attention_interval", net.interval);
  }

  void Experts() {
    const ShapeExperts& experts = shape_.experts;
    Int("expert_count", experts.count);
    Int("expert_used_count", experts.used);
    Int("expert_feed_forward_length", experts.width);
    if (shape_.has_delta_nets()) {
      Int("expert_shared_feed_forward_length", experts.shared * experts.width);
    } else {
      IntUnlessZero("expert_shared_count", experts.shared);
    }
    IntUnlessZero("leading_dense_block_count", std::min(experts.dense_lead, shape_.layers));
    IntUnlessZero("expert_group_count", experts.groups);
    IntUnlessZero("expert_group_used_count", experts.groups_used);
    IntUnlessZero("expert_gating_func", experts.gating);
    FloatUnlessZero("expert_weights_scale", experts.weights_scale);
    if (experts.weights_norm.has_value()) Set("expert_weights_norm", *experts.weights_norm);
  }

  const ModelShape& shape_;
  std::vector<std::pair<std::string, GgufValue>> keys_;
};

using Kind = ShapeTensorKind;

class Tensors {
 public:
  explicit Tensors(const ModelShape& shape) : shape_(shape), form_(shape.form) {}

  std::vector<ShapeTensor> All() {
    Matrix("token_embd.weight", shape_.hidden, shape_.vocab, shape_.tied ? Kind::kHead : Kind::kMatrix);
    for (layer_ = 0; layer_ < shape_.blocks(); ++layer_) {
      prefix_ = absl::StrCat("blk.", layer_, ".");
      Attention();
      Ffn();
      if (layer_ >= shape_.layers) Draft();
    }
    layer_ = -1;
    prefix_.clear();
    Floats("output_norm.weight", {shape_.hidden});
    if (!shape_.tied) Matrix("output.weight", shape_.hidden, shape_.vocab, Kind::kHead);
    return std::move(tensors_);
  }

 private:
  void Floats(const char* name, std::vector<int64_t> dims) {
    tensors_.push_back({absl::StrCat(prefix_, name), std::move(dims), Kind::kFloats, layer_});
  }
  void Matrix(const char* name, int64_t cols, int64_t rows, Kind kind = Kind::kMatrix) {
    tensors_.push_back({absl::StrCat(prefix_, name), {cols, rows}, kind, layer_});
  }
  // One matrix of each head.
  void PerHead(const char* name, int64_t cols, int64_t rows) {
    tensors_.push_back({absl::StrCat(prefix_, name), {cols, rows, shape_.heads}, Kind::kMatrix, layer_});
  }
  // One matrix of each expert, and its bias where the architecture has any.
  void PerExpert(const std::string& name, int64_t cols, int64_t rows, Kind kind = Kind::kMatrix) {
    const int64_t count = shape_.experts.count;
    tensors_.push_back({absl::StrCat(prefix_, name, ".weight"), {cols, rows, count}, kind, layer_, true});
    if (form_.expert_bias) Floats((name + ".bias").c_str(), {rows, count});
  }

  void Attention() {
    if (form_.norms != ShapeNorms::kOutputs) Floats("attn_norm.weight", {shape_.hidden});
    if (shape_.is_delta_net(layer_)) {
      DeltaNet();
    } else if (shape_.has_latent()) {
      LatentAttention();
    } else {
      GroupedAttention();
    }
    if (form_.output_bias) Floats("attn_output.bias", {shape_.hidden});
    if (form_.sinks) Floats("attn_sinks.weight", {shape_.heads});
    if (form_.norms != ShapeNorms::kInputs) Floats("post_attention_norm.weight", {shape_.hidden});
  }

  void GroupedAttention() {
    const int64_t hidden = shape_.hidden, q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    if (form_.fused) {
      Matrix("attn_qkv.weight", hidden, q + 2 * kv, Kind::kFusedQkv);
    } else {
      Matrix("attn_q.weight", hidden, shape_.has_delta_nets() ? 2 * q : q);  // and a gate
      Matrix("attn_k.weight", hidden, kv);
      Matrix("attn_v.weight", hidden, kv, Kind::kMoreBits);
    }
    if (form_.qkv_bias) {
      Floats("attn_q.bias", {q});
      Floats("attn_k.bias", {kv});
      Floats("attn_v.bias", {kv});
    }
    if (shape_.qk_norm != ShapeQkNorm::kNone) {
      const bool whole = shape_.qk_norm == ShapeQkNorm::kWhole;
      Floats("attn_q_norm.weight", {whole ? q : shape_.head_dim});
      Floats("attn_k_norm.weight", {whole ? kv : shape_.head_dim});
    }
    Matrix("attn_output.weight", q, hidden);
  }

  void DeltaNet() {
    const ShapeDeltaNet& net = shape_.delta_net;
    const int64_t hidden = shape_.hidden, heads = net.value_heads, values = heads * net.head_dim;
    const int64_t mixed = 2 * net.key_heads * net.head_dim + values;
    Matrix("attn_qkv.weight", hidden, mixed, Kind::kFusedQkv);
    Matrix("attn_gate.weight", hidden, values);
    if (form_.fused_beta_alpha) {
      Floats("ssm_ba.weight", {hidden, 2 * heads});
    } else {
      Floats("ssm_beta.weight", {hidden, heads});
      Floats("ssm_alpha.weight", {hidden, heads});
    }
    Floats("ssm_conv1d.weight", {net.conv_kernel, mixed});
    Floats("ssm_dt.bias", {heads});
    Floats("ssm_a", {heads});
    Floats("ssm_norm.weight", {net.head_dim});
    Matrix("ssm_out.weight", values, hidden);
  }

  void LatentAttention() {
    const ShapeLatent& latent = shape_.latent;
    const int64_t hidden = shape_.hidden, q = shape_.heads * shape_.head_dim, rotated = shape_.rope.dims;
    if (latent.q_rank > 0) {
      Matrix("attn_q_a.weight", hidden, latent.q_rank);
      Floats("attn_q_a_norm.weight", {latent.q_rank});
      Matrix("attn_q_b.weight", latent.q_rank, q);
    } else {
      Matrix("attn_q.weight", hidden, q);
    }
    Matrix("attn_kv_a_mqa.weight", hidden, latent.kv_rank + rotated);
    Floats("attn_kv_a_norm.weight", {latent.kv_rank});
    PerHead("attn_k_b.weight", shape_.head_dim - rotated, latent.kv_rank);
    PerHead("attn_v_b.weight", latent.kv_rank, latent.value_dim);
    Matrix("attn_output.weight", shape_.heads * latent.value_dim, hidden);
  }

  void Ffn() {
    const ShapeNorms norms = form_.norms;
    if (norms == ShapeNorms::kInputs || norms == ShapeNorms::kInputsOutputs) Floats("ffn_norm.weight", {shape_.hidden});
    if (shape_.experts.count > 0 && layer_ >= shape_.experts.dense_lead) {
      Experts();
    } else {
      Dense("", shape_.ffn);
    }
    if (norms == ShapeNorms::kOutputs || norms == ShapeNorms::kInputsOutputs) {
      Floats("post_ffw_norm.weight", {shape_.hidden});
    }
  }

  void Dense(const std::string& suffix, int64_t width) {
    const int64_t hidden = shape_.hidden;
    const auto name = [&suffix](const char* part) { return absl::StrCat("ffn_", part, suffix, ".weight"); };
    if (!form_.fused) Matrix(name("gate").c_str(), hidden, width);
    Matrix(name("up").c_str(), hidden, form_.fused ? 2 * width : width);
    Matrix(name("down").c_str(), width, hidden, Kind::kMoreBits);
  }

  void Experts() {
    const ShapeExperts& experts = shape_.experts;
    const int64_t hidden = shape_.hidden;
    Floats("ffn_gate_inp.weight", {hidden, experts.count});
    if (form_.expert_bias) Floats("ffn_gate_inp.bias", {experts.count});
    if (experts.selection_bias()) Floats("exp_probs_b.bias", {experts.count});
    PerExpert("ffn_gate_exps", hidden, experts.width);
    PerExpert("ffn_up_exps", hidden, experts.width);
    PerExpert("ffn_down_exps", experts.width, hidden, Kind::kMoreBits);
    if (experts.shared > 0) Dense("_shexp", experts.shared * experts.width);
    if (experts.shared > 0 && shape_.has_delta_nets()) Floats("ffn_gate_inp_shexp.weight", {hidden});
  }

  // What makes a block draft the token after the next one.
  void Draft() {
    Matrix("nextn.eh_proj.weight", 2 * shape_.hidden, shape_.hidden);
    if (!shape_.has_delta_nets()) Matrix("nextn.embed_tokens.weight", shape_.hidden, shape_.vocab);
    Floats("nextn.enorm.weight", {shape_.hidden});
    Floats("nextn.hnorm.weight", {shape_.hidden});
    if (!shape_.has_delta_nets()) Matrix("nextn.shared_head_head.weight", shape_.hidden, shape_.vocab);
    Floats("nextn.shared_head_norm.weight", {shape_.hidden});
  }

  const ModelShape& shape_;
  const ShapeForm& form_;
  int64_t layer_ = -1;
  std::string prefix_;
  std::vector<ShapeTensor> tensors_;
};

}  // namespace

absl::Span<const ModelShape> ModelShapes() { return kShapes; }

std::vector<std::pair<std::string, GgufValue>> ShapeKeys(const ModelShape& shape) { return Keys(shape).All(); }

std::vector<ShapeTensor> ShapeTensors(const ModelShape& shape) { return Tensors(shape).All(); }

}  // namespace stagecoach
