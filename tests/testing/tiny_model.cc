#include "tests/testing/tiny_model.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/tiny_vocabulary.h"

namespace stagecoach::testing {
namespace {

class Builder {
 public:
  explicit Builder(const TinyModelOptions& options) : o_(options) {}

  GgufWriter Build() {
    SetHyperParameters();
    SetTinyVocabulary(o_.vocab, &writer_);
    AddMatrix("token_embd.weight", o_.vocab, o_.hidden);
    for (int64_t layer = 0; layer < o_.layers; ++layer) {
      AddLayer(absl::StrCat("blk.", layer, "."),
               o_.ffn_of_layers.empty() ? o_.ffn : o_.ffn_of_layers[static_cast<size_t>(layer)]);
    }
    AddNorm("output_norm.weight", o_.hidden);
    if (!o_.tied) AddMatrix("output.weight", o_.vocab, o_.hidden);
    if (o_.rope_factors) AddRopeFactors();
    return std::move(writer_);
  }

 private:
  void SetHyperParameters() {
    const auto u32 = [&](absl::string_view key, int64_t value) {
      writer_.Set(absl::StrCat(o_.architecture, ".", key), static_cast<uint32_t>(value));
    };
    const auto f32 = [&](absl::string_view key, double value) {
      writer_.Set(absl::StrCat(o_.architecture, ".", key), static_cast<float>(value));
    };
    writer_.Set("general.architecture", o_.architecture);
    writer_.Set("general.name", "Tiny Random");
    u32("block_count", o_.layers);
    u32("context_length", o_.context);
    u32("embedding_length", o_.hidden);
    if (o_.ffn_of_layers.empty()) {
      u32("feed_forward_length", o_.ffn);
    } else {
      writer_.Set(absl::StrCat(o_.architecture, ".feed_forward_length"), o_.ffn_of_layers);
    }
    u32("attention.head_count", o_.heads);
    u32("attention.head_count_kv", o_.kv_heads);
    u32("attention.key_length", o_.head_dim);
    u32("attention.value_length", o_.head_dim);
    f32("attention.layer_norm_rms_epsilon", 1e-6);
    u32("rope.dimension_count", o_.head_dim);
    f32("rope.freq_base", o_.rope_freq_base);
    u32("vocab_size", o_.vocab);
    if (!o_.rope_scaling.empty()) {
      writer_.Set(absl::StrCat(o_.architecture, ".rope.scaling.type"), o_.rope_scaling);
      f32("rope.scaling.factor", o_.rope_factor);
    }
    if (o_.rope_original_context > 0) u32("rope.scaling.original_context_length", o_.rope_original_context);
  }

  void AddLayer(const std::string& prefix, int64_t ffn) {
    const int64_t q_width = o_.heads * o_.head_dim, kv_width = o_.kv_heads * o_.head_dim;
    const bool qkv_biases = o_.biases || o_.architecture == "qwen2";
    const bool other_biases = o_.biases && o_.architecture == "llama";
    AddNorm(prefix + "attn_norm.weight", o_.hidden);
    if (o_.fused_qkv) {
      AddFused(prefix, q_width, kv_width, qkv_biases);
    } else {
      AddLinear(prefix + "attn_q", q_width, o_.hidden, qkv_biases);
      AddLinear(prefix + "attn_k", kv_width, o_.hidden, qkv_biases);
      AddLinear(prefix + "attn_v", kv_width, o_.hidden, qkv_biases);
    }
    if (o_.architecture == "qwen3") {
      AddNorm(prefix + "attn_q_norm.weight", o_.head_dim);
      AddNorm(prefix + "attn_k_norm.weight", o_.head_dim);
    }
    AddLinear(prefix + "attn_output", o_.hidden, q_width, other_biases);
    AddNorm(prefix + "ffn_norm.weight", o_.hidden);
    AddLinear(prefix + "ffn_gate", ffn, o_.hidden, other_biases);
    AddLinear(prefix + "ffn_up", ffn, o_.hidden, other_biases);
    AddLinear(prefix + "ffn_down", o_.hidden, ffn, other_biases);
  }

  void AddFused(const std::string& prefix, int64_t q_width, int64_t kv_width, bool biases) {
    std::vector<float> weights, bias;
    for (const auto& [name, rows] :
         {std::pair("attn_q", q_width), std::pair("attn_k", kv_width), std::pair("attn_v", kv_width)}) {
      const std::vector<float> matrix = Matrix(absl::StrCat(prefix, name, ".weight"), rows, o_.hidden);
      const std::vector<float> vector = Bias(absl::StrCat(prefix, name, ".bias"), rows);
      weights.insert(weights.end(), matrix.begin(), matrix.end());
      bias.insert(bias.end(), vector.begin(), vector.end());
    }
    const int64_t rows = q_width + 2 * kv_width;
    writer_.SetTensor(prefix + "attn_qkv.weight", {o_.hidden, rows}, o_.type, weights);
    if (biases) writer_.SetTensor(prefix + "attn_qkv.bias", {rows}, o_.vector_type, bias);
  }

  void AddLinear(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    AddMatrix(name + ".weight", rows, cols);
    if (bias) writer_.SetTensor(name + ".bias", {rows}, o_.vector_type, Bias(name + ".bias", rows));
  }

  void AddMatrix(const std::string& name, int64_t rows, int64_t cols) {
    if (CanQuantize(o_.type)) {
      writer_.SetTensor(name, {cols, rows}, o_.type, Matrix(name, rows, cols));
    } else {
      writer_.SetTensor(name, {cols, rows}, static_cast<uint32_t>(o_.type),
                        RandomBlocks(o_.seed, name, o_.type, rows, cols, Magnitude(cols)));
    }
  }

  void AddNorm(const std::string& name, int64_t size) {
    writer_.SetTensor(name, {size}, o_.vector_type, NormalValues(o_.seed, name, size, 1, 0.1));
  }

  // Llama 3.1's divisors (factor 8, low 1, high 4, original context 8192).
  void AddRopeFactors() {
    std::vector<float> factors;
    for (int64_t i = 0; i < o_.head_dim / 2; ++i) {
      const double wavelength =
          2 * std::numbers::pi *
          std::pow(o_.rope_freq_base, 2.0 * static_cast<double>(i) / static_cast<double>(o_.head_dim));
      const double smooth = (8192 / wavelength - 1) / 3;
      const double divisor = smooth >= 1 ? 1 : smooth <= 0 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
      factors.push_back(static_cast<float>(divisor));
    }
    writer_.SetTensor("rope_freqs.weight", {o_.head_dim / 2}, TensorType::kF32, factors);
  }

  std::vector<float> Matrix(const std::string& name, int64_t rows, int64_t cols) const {
    return NormalValues(o_.seed, name, rows * cols, 0, Magnitude(cols));
  }
  static double Magnitude(int64_t cols) { return 1 / std::sqrt(static_cast<double>(cols)); }
  std::vector<float> Bias(const std::string& name, int64_t size) const {
    return NormalValues(o_.seed, name, size, 0, 0.1);
  }

  const TinyModelOptions& o_;
  GgufWriter writer_;
};

}  // namespace

TinyModelOptions WideTinyModel(TensorType type) {
  return {.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .ffn = 256, .type = type};
}

GgufWriter TinyModel(const TinyModelOptions& options) { return Builder(options).Build(); }

std::string WriteTinyModel(const std::string& path, const TinyModelOptions& options) {
  const GgufWriter writer = TinyModel(options);
  if (options.shards <= 1) {
    CHECK(writer.Write(path).ok());
    return path;
  }
  const auto paths = writer.WriteShards(std::string(absl::StripSuffix(path, ".gguf")), options.shards);
  CHECK(paths.ok());
  return paths->front();
}

}  // namespace stagecoach::testing
