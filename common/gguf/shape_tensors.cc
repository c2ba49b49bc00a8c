#include "common/gguf/shape_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

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
    if (shape_.has_latent()) {
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
      Matrix("attn_q.weight", hidden, q);
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
  }

  // What makes a block draft the token after the next one.
  void Draft() {
    Matrix("nextn.eh_proj.weight", 2 * shape_.hidden, shape_.hidden);
    Matrix("nextn.embed_tokens.weight", shape_.hidden, shape_.vocab);
    Floats("nextn.enorm.weight", {shape_.hidden});
    Floats("nextn.hnorm.weight", {shape_.hidden});
    Matrix("nextn.shared_head_head.weight", shape_.hidden, shape_.vocab);
    Floats("nextn.shared_head_norm.weight", {shape_.hidden});
  }

  const ModelShape& shape_;
  const ShapeForm& form_;
  int64_t layer_ = -1;
  std::string prefix_;
  std::vector<ShapeTensor> tensors_;
};

}  // namespace

std::vector<ShapeTensor> ShapeTensors(const ModelShape& shape) { return Tensors(shape).All(); }

}  // namespace stagecoach
