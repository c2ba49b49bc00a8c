#include "common/gguf/shape_keys.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

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
    Int("feed_forward_length", shape_.ffn);
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

  void Experts() {
    const ShapeExperts& experts = shape_.experts;
    Int("expert_count", experts.count);
    Int("expert_used_count", experts.used);
    Int("expert_feed_forward_length", experts.width);
    IntUnlessZero("expert_shared_count", experts.shared);
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

}  // namespace

std::vector<std::pair<std::string, GgufValue>> ShapeKeys(const ModelShape& shape) { return Keys(shape).All(); }

}  // namespace stagecoach
