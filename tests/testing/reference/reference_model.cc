#include "tests/testing/reference/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach::testing {
namespace {

using reference::FileReader;
using reference::Vector;

constexpr const char* kArchitectures[] = {"llama",     "qwen2",      "qwen3",  "qwen3moe",  "gpt-oss",  "glm4moe",
                                          "deepseek2", "minimax-m2", "gemma2", "gemma3",    "phi3",     "granite",
                                          "olmo2",     "smollm3",    "qwen35", "qwen35moe", "qwen3next"};

}  // namespace

std::unique_ptr<ReferenceModel> ReferenceModel::Open(const std::string& path, int64_t context) {
  auto file = GgufFile::Open(path);
  if (!file.ok()) std::fprintf(stderr, "reference: %s\n", file.status().ToString().c_str());
  CHECK(file.ok());
  const FileReader reader(std::move(*file));
  const bool known = std::any_of(std::begin(kArchitectures), std::end(kArchitectures),
                                 [&](const char* name) { return reader.Is(name); });
  if (!known) std::fprintf(stderr, "reference: no architecture '%s'\n", reader.architecture().c_str());
  CHECK(known);
  return std::unique_ptr<ReferenceModel>(
      new ReferenceModel(reader, context > 0 ? context : reader.Int("context_length")));
}

ReferenceModel::ReferenceModel(const FileReader& file, int64_t context)
    : eps_(file.Float("attention.layer_norm_rms_epsilon")),
      embedding_(file.ReadMatrix("token_embd.weight")),
      head_(file.HasTensor("output.weight") ? file.ReadMatrix("output.weight") : embedding_),
      output_norm_(file.ReadVector("output_norm.weight")),
      output_bias_(file.ReadVector("output.bias")) {
  CHECK_EQ(embedding_.cols, file.Int("embedding_length"));
  if (file.Is("gemma2") || file.Is("gemma3")) embedding_scale_ = std::sqrt(static_cast<double>(embedding_.cols));
  if (file.Is("gemma2") || file.Is("gemma3"))
    logit_cap_ = file.Float("final_logit_softcapping", file.Is("gemma2") ? 30 : 0);
  if (file.Is("granite")) {
    const auto scale = [&](const char* name) {
      const double value = file.Float(name);
      return value == 0 ? 1 : value;
    };
    embedding_scale_ = scale("embedding_scale");
    residual_scale_ = scale("residual_scale");
    logit_scale_ = 1 / scale("logit_scale");
  }
  // The blocks at the end that predict a token after the next are no part of the forward pass.
  const int64_t layers = file.Int("block_count") - file.Int("nextn_predict_layers", 0);
  for (int64_t i = 0; i < layers; ++i) layers_.push_back(ReadLayer(file, i, context));
}

// post_attention_norm is behind the attention in the models that have norms there, and before the FFN in some that have
// no ffn_norm.
ReferenceModel::Layer ReferenceModel::ReadLayer(const FileReader& file, int64_t index, int64_t context) {
  const std::string prefix = absl::StrCat("blk.", index, ".");
  Layer layer;
  layer.attention = ReadAttention(file, index, context);
  layer.ffn = ReadFeedForward(file, index);
  const bool post_norms = file.Is("gemma2") || file.Is("gemma3") || file.Is("olmo2");
  const bool pre_norms = !file.Is("olmo2");
  const bool renamed =
      file.Is("gpt-oss") || file.Is("glm4moe") || file.Is("qwen35") || file.Is("qwen35moe") || file.Is("qwen3next");
  if (pre_norms) {
    layer.attention_norm = file.ReadVector(prefix + "attn_norm.weight");
    layer.ffn_norm = file.ReadVector(prefix + (renamed ? "post_attention_norm.weight" : "ffn_norm.weight"));
    CHECK(!layer.attention_norm.empty() && !layer.ffn_norm.empty());
  }
  if (post_norms) {
    layer.attention_post_norm = file.ReadVector(prefix + "post_attention_norm.weight");
    layer.ffn_post_norm = file.ReadVector(prefix + "post_ffw_norm.weight");
    CHECK(!layer.attention_post_norm.empty() && !layer.ffn_post_norm.empty());
  }
  return layer;
}

std::vector<double> ReferenceModel::NormOrNone(const Vector& x, const Vector& weight) const {
  return weight.empty() ? x : reference::RmsNorm(x.data(), weight, eps_);
}

std::vector<double> ReferenceModel::Feed(TokenId token) {
  CHECK(token >= 0 && token < embedding_.rows);
  const auto row = embedding_.values.begin() + token * embedding_.cols;
  Vector x(row, row + embedding_.cols);
  for (double& value : x) value *= embedding_scale_;
  for (Layer& layer : layers_) {
    const Vector attended =
        NormOrNone(layer.attention->Attend(NormOrNone(x, layer.attention_norm)), layer.attention_post_norm);
    for (size_t i = 0; i < x.size(); ++i) x[i] += residual_scale_ * attended[i];
    const Vector made = NormOrNone(layer.ffn->Run(NormOrNone(x, layer.ffn_norm)), layer.ffn_post_norm);
    for (size_t i = 0; i < x.size(); ++i) x[i] += residual_scale_ * made[i];
  }
  Vector logits = reference::Multiply(head_, NormOrNone(x, output_norm_));
  reference::AddTo(output_bias_, &logits);
  for (double& logit : logits) logit = reference::SoftCap(logit * logit_scale_, logit_cap_);
  return logits;
}

std::vector<std::vector<double>> ReferenceModel::Logits(const std::vector<TokenId>& tokens) {
  std::vector<std::vector<double>> logits;
  for (const TokenId token : tokens) logits.push_back(Feed(token));
  return logits;
}

void ReferenceModel::Clear() {
  for (Layer& layer : layers_) layer.attention->Forget();
}

double ReferenceModel::ChoiceMargin() const {
  double margin = 1e300;
  for (const Layer& layer : layers_) margin = std::min(margin, layer.ffn->ChoiceMargin());
  return margin;
}

}  // namespace stagecoach::testing
