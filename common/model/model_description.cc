#include "common/model/model_description.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

using Shape = std::vector<int64_t>;  // in stored order: the row length first

std::string ShapeText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

// Missing dimensions count as 1.
bool SameShape(const Shape& a, const Shape& b) {
  for (size_t d = 0; d < std::max(a.size(), b.size()); ++d) {
    if ((d < a.size() ? a[d] : 1) != (d < b.size() ? b[d] : 1)) return false;
  }
  return true;
}

// Looks tensors up by name, checks their shape and type, and remembers which ones were asked for.
class Directory {
 public:
  explicit Directory(const GgufFile& file) : file_(file) {}

  absl::Status Vector(const std::string& name, int64_t size, bool required, const GgufTensor*& out) {
    RETURN_IF_ERROR(Find(name, {size}, required, out));
    if (out == nullptr) return absl::OkStatus();
    const auto type = static_cast<TensorType>(out->type_id);
    if (type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16) return absl::OkStatus();
    return Invalid("tensor '", name, "' has type ", FindTensorType(out->type_id)->name, ", expected F32, F16 or BF16");
  }

  absl::Status Matrix(const std::string& name, int64_t rows, int64_t cols, bool required, const GgufTensor*& out) {
    return Find(name, {cols, rows}, required, out);
  }

  // A tensor that nobody asked for belongs to something we do not compute.
  absl::Status CheckAllKnown(const HyperParameters& hyper) const {
    for (const GgufTensor& tensor : file_.tensors()) {
      const bool unused_by_design =
          absl::EndsWith(tensor.name, "rope_freqs.weight") || absl::EndsWith(tensor.name, "attn_rot_embd.weight");
      if (unused_by_design || used_.contains(&tensor)) continue;
      return absl::UnimplementedError(absl::StrCat(
          "'", file_.path(), "': tensor '", tensor.name, "' is not part of a supported ", hyper.architecture,
          " model of ", hyper.layer_count(), " layers; computing without it would be wrong"));
    }
    return absl::OkStatus();
  }

 private:
  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': ", parts...));
  }

  absl::Status Find(const std::string& name, const Shape& expected, bool required, const GgufTensor*& out) {
    out = file_.FindTensor(name);
    if (out == nullptr) {
      if (!required) return absl::OkStatus();
      return Invalid("tensor '", name, "' is missing, expected one of shape ", ShapeText(expected));
    }
    if (!SameShape(out->dims, expected)) {
      return Invalid("tensor '", name, "' has shape ", ShapeText(out->dims), ", expected ", ShapeText(expected));
    }
    const TensorTypeInfo* type = FindTensorType(out->type_id);
    if (!type->supported) {
      return absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", name, "' has type ", type->name,
                                                   "; supported types are ", SupportedTensorTypes()));
    }
    used_.insert(out);
    return absl::OkStatus();
  }

  const GgufFile& file_;
  absl::flat_hash_set<const GgufTensor*> used_;
};

absl::Status FindQkv(Directory& find, const AttentionSpec& spec, int64_t hidden, const std::string& prefix,
                     LayerTensors& layer) {
  const int64_t q = spec.q_width(), kv = spec.kv_width();
  RETURN_IF_ERROR(find.Matrix(prefix + "attn_qkv.weight", q + 2 * kv, hidden, false, layer.attn_qkv));
  if (layer.attn_qkv != nullptr) {
    return find.Vector(prefix + "attn_qkv.bias", q + 2 * kv, spec.qkv_bias, layer.attn_qkv_bias);
  }
  RETURN_IF_ERROR(find.Matrix(prefix + "attn_q.weight", q, hidden, true, layer.attn_q));
  RETURN_IF_ERROR(find.Matrix(prefix + "attn_k.weight", kv, hidden, true, layer.attn_k));
  RETURN_IF_ERROR(find.Matrix(prefix + "attn_v.weight", kv, hidden, true, layer.attn_v));
  RETURN_IF_ERROR(find.Vector(prefix + "attn_q.bias", q, spec.qkv_bias, layer.attn_q_bias));
  RETURN_IF_ERROR(find.Vector(prefix + "attn_k.bias", kv, spec.qkv_bias, layer.attn_k_bias));
  return find.Vector(prefix + "attn_v.bias", kv, spec.qkv_bias, layer.attn_v_bias);
}

absl::Status FindAttention(Directory& find, const AttentionSpec& spec, int64_t hidden, const std::string& prefix,
                           LayerTensors& layer) {
  RETURN_IF_ERROR(find.Vector(prefix + "attn_norm.weight", hidden, true, layer.attn_norm));
  RETURN_IF_ERROR(FindQkv(find, spec, hidden, prefix, layer));
  if (spec.qk_norm != QkNorm::kNone) {
    RETURN_IF_ERROR(find.Vector(prefix + "attn_q_norm.weight", spec.head_dim, true, layer.attn_q_norm));
    RETURN_IF_ERROR(find.Vector(prefix + "attn_k_norm.weight", spec.head_dim, true, layer.attn_k_norm));
  }
  RETURN_IF_ERROR(find.Matrix(prefix + "attn_output.weight", hidden, spec.q_width(), true, layer.attn_output));
  return find.Vector(prefix + "attn_output.bias", hidden, false, layer.attn_output_bias);
}

absl::Status FindFfn(Directory& find, const FfnSpec& spec, int64_t hidden, const std::string& prefix,
                     LayerTensors& layer) {
  RETURN_IF_ERROR(find.Vector(prefix + "ffn_norm.weight", hidden, true, layer.ffn_norm));
  RETURN_IF_ERROR(find.Matrix(prefix + "ffn_gate.weight", spec.width, hidden, true, layer.ffn_gate));
  RETURN_IF_ERROR(find.Matrix(prefix + "ffn_up.weight", spec.width, hidden, true, layer.ffn_up));
  RETURN_IF_ERROR(find.Matrix(prefix + "ffn_down.weight", hidden, spec.width, true, layer.ffn_down));
  RETURN_IF_ERROR(find.Vector(prefix + "ffn_gate.bias", spec.width, false, layer.ffn_gate_bias));
  RETURN_IF_ERROR(find.Vector(prefix + "ffn_up.bias", spec.width, false, layer.ffn_up_bias));
  return find.Vector(prefix + "ffn_down.bias", hidden, false, layer.ffn_down_bias);
}

// A token id outside the embedding must never reach a stage, so the vocabulary may not have one.
absl::Status CheckVocabulary(const GgufMetadata& metadata, int64_t vocab) {
  const GgufValue* tokens = metadata.Find("tokenizer.ggml.tokens");
  const GgufArray* array = tokens ? std::get_if<GgufArray>(tokens) : nullptr;
  if (array != nullptr && static_cast<int64_t>(array->size()) > vocab) {
    return absl::InvalidArgumentError(absl::StrCat("'", metadata.path(), "': key 'tokenizer.ggml.tokens' has ",
                                                   array->size(), " tokens, but tensor 'token_embd.weight' has ", vocab,
                                                   " rows"));
  }
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    ASSIGN_OR_RETURN(const int64_t id, metadata.GetIntOr(key, 0));
    if (id >= 0 && id < vocab) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", metadata.path(), "': key '", key, "' is ", id, ", expected 0 to ", vocab - 1));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<const GgufTensor*> LayerTensors::All() const {
  std::vector<const GgufTensor*> present;
  for (const GgufTensor* tensor :
       {attn_norm,      attn_q,        attn_k,         attn_v,       attn_qkv,       attn_q_bias,  attn_k_bias,
        attn_v_bias,    attn_qkv_bias, attn_q_norm,    attn_k_norm,  attn_sinks,     attn_q_a,     attn_q_a_norm,
        attn_q_b,       attn_kv_a,     attn_kv_a_norm, attn_k_b,     attn_v_b,       attn_output,  attn_output_bias,
        attn_post_norm, ffn_norm,      router,         router_bias,  selection_bias, gate_exps,    up_exps,
        gate_up_exps,   down_exps,     gate_exps_bias, up_exps_bias, down_exps_bias, ffn_gate,     ffn_up,
        ffn_gate_up,    ffn_down,      ffn_gate_bias,  ffn_up_bias,  ffn_down_bias,  ffn_post_norm}) {
    if (tensor != nullptr) present.push_back(tensor);
  }
  return present;
}

std::vector<const GgufTensor*> ModelDescription::StageTensors(int64_t first_layer, int64_t last_layer,
                                                              bool owns_embedding, bool owns_head) const {
  CHECK(0 <= first_layer && first_layer <= last_layer && last_layer <= hyper.layer_count());
  std::vector<const GgufTensor*> tensors;
  if (owns_embedding) tensors.push_back(token_embd);
  if (rope_freqs != nullptr && first_layer < last_layer) tensors.push_back(rope_freqs);
  for (int64_t layer = first_layer; layer < last_layer; ++layer) {
    const std::vector<const GgufTensor*> all = layers[layer].All();
    tensors.insert(tensors.end(), all.begin(), all.end());
  }
  if (owns_head) {
    tensors.push_back(output_norm);
    if (!(owns_embedding && tied())) tensors.push_back(output);
    if (output_bias != nullptr) tensors.push_back(output_bias);
  }
  return tensors;
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenModel(const std::string& path,
                                                                  const GgufOpenOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path, options));
  return DescribeModel(std::move(file));
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> DescribeModel(std::shared_ptr<const GgufFile> file) {
  auto model = std::make_shared<ModelDescription>();
  ASSIGN_OR_RETURN(model->hyper, ReadHyperParameters(*file));
  const HyperParameters& hyper = model->hyper;
  RETURN_IF_ERROR(CheckVocabulary(file->metadata(), hyper.vocab));
  Directory find(*file);
  RETURN_IF_ERROR(find.Matrix("token_embd.weight", hyper.vocab, hyper.hidden, true, model->token_embd));
  RETURN_IF_ERROR(find.Vector("output_norm.weight", hyper.hidden, true, model->output_norm));
  RETURN_IF_ERROR(find.Matrix("output.weight", hyper.vocab, hyper.hidden, false, model->output));
  if (model->output == nullptr) model->output = model->token_embd;
  RETURN_IF_ERROR(find.Vector("output.bias", hyper.vocab, false, model->output_bias));
  if (hyper.layers[0].attention.rope.factors) {
    RETURN_IF_ERROR(find.Vector("rope_freqs.weight", hyper.layers[0].attention.head_dim / 2, false, model->rope_freqs));
  }
  model->layers.resize(hyper.layers.size());
  for (size_t i = 0; i < hyper.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("blk.", i, ".");
    RETURN_IF_ERROR(FindAttention(find, hyper.layers[i].attention, hyper.hidden, prefix, model->layers[i]));
    RETURN_IF_ERROR(FindFfn(find, hyper.layers[i].ffn, hyper.hidden, prefix, model->layers[i]));
  }
  RETURN_IF_ERROR(find.CheckAllKnown(hyper));
  model->file = std::move(file);
  return std::shared_ptr<const ModelDescription>(std::move(model));
}

absl::StatusOr<int64_t> KvBytesPerTokenLayer(const AttentionSpec& attention, KvType kv_type) {
  if (kv_type == KvType::kQ8_0 && attention.head_dim % kKvGroup != 0) {
    return absl::InvalidArgumentError(absl::StrCat("`kv_type` is q8_0, which keeps one scale per ", kKvGroup,
                                                   " dimensions of a head, but this model's heads have ",
                                                   attention.head_dim, "; use f16, bf16 or f32"));
  }
  return KvBytes(kv_type, 2 * attention.kv_width());
}

}  // namespace stagecoach
