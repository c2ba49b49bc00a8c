#include "common/model/model_description.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/model/architectures.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

// A token id outside the embedding must never reach a stage, so the vocabulary may not have one.
absl::Status CheckVocabulary(const GgufMetadata& metadata, int64_t vocab) {
  const GgufValue* tokens = metadata.Find("tokenizer.ggml.tokens");
  const GgufArray* array = tokens ? std::get_if<GgufArray>(tokens) : nullptr;
  if (array != nullptr && static_cast<int64_t>(array->size()) > vocab) {
    return absl::InvalidArgumentError(absl::StrCat("'", metadata.path(), "': key 'tokenizer.ggml.tokens' has ",
                                                   array->size(), " tokens, but tensor 'token_embd.weight' has ", vocab,
                                                   " rows"));
  }
  // The padding token is not among them: nothing here pads, and some files have none, which they write as -1.
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    ASSIGN_OR_RETURN(const int64_t id, metadata.GetIntOr(key, 0));
    if (id >= 0 && id < vocab) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", metadata.path(), "': key '", key, "' is ", id, ", expected 0 to ", vocab - 1));
  }
  return absl::OkStatus();
}

using Shape = std::vector<int64_t>;  // in stored order: the row length first; missing dimensions count as 1

std::string ShapeText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

bool SameShape(const Shape& a, const Shape& b) {
  for (size_t d = 0; d < std::max(a.size(), b.size()); ++d) {
    if ((d < a.size() ? a[d] : 1) != (d < b.size() ? b[d] : 1)) return false;
  }
  return true;
}

// Finds tensors by name, checks shape and type, and remembers which ones were found. An absent one is nullptr, and an
// error if required. The first error stays; it names file, tensor, what was expected and what was found.
class TensorFinder {
 public:
  explicit TensorFinder(const GgufFile& file) : file_(file) {}

  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }  // of the names that follow
  const absl::Status& status() const { return status_; }

  // F32, F16 or BF16.
  void Vector(const char* name, const Shape& shape, bool required, const GgufTensor*& out) {
    Matrix(name, shape, required, out);
    if (out == nullptr) return;
    const auto type = static_cast<TensorType>(out->type_id);
    if (type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16) return;
    Invalid("tensor '", out->name, "' has type ", FindTensorType(out->type_id)->name, ", expected F32, F16 or BF16");
  }

  void Matrix(const char* name, const Shape& expected, bool required, const GgufTensor*& out) {
    const std::string whole_name = prefix_ + name;
    out = file_.FindTensor(whole_name);
    if (out == nullptr) {
      if (required) Invalid("tensor '", whole_name, "' is missing, expected one of shape ", ShapeText(expected));
      return;
    }
    if (!SameShape(out->dims, expected)) {
      Invalid("tensor '", whole_name, "' has shape ", ShapeText(out->dims), ", expected ", ShapeText(expected));
    }
    const TensorTypeInfo* type = FindTensorType(out->type_id);
    if (!type->supported) {
      status_.Update(
          absl::UnimplementedError(absl::StrCat("'", file_.path(), "': tensor '", whole_name, "' has type ", type->name,
                                                "; supported types are ", SupportedTensorTypes())));
    }
    used_.insert(out);
  }

  // An unused tensor belongs to something that is not computed. Those of skipped layers are allowed.
  absl::Status CheckAllKnown(const HyperParameters& hyper, const Architecture& architecture) {
    for (const GgufTensor& tensor : file_.tensors()) {
      // Factors of positions are in files of models that have no positions, too.
      const bool unused_by_design = absl::EndsWith(tensor.name, ".attn_rot_embd.weight") ||
                                    (architecture.rope_factors && tensor.name == "rope_freqs.weight") ||
                                    (architecture.delta_net && tensor.name == "output_extra.weight");  // a draft's
      if (unused_by_design || used_.contains(&tensor)) continue;
      const int64_t layer = LayerOfTensor(tensor.name);
      if (layer >= hyper.layer_count() && layer < hyper.layer_count() + hyper.skipped_layers) {
        if (HasDraft(layer)) continue;
        Invalid("key '", hyper.architecture, ".nextn_predict_layers' is ", hyper.skipped_layers, ", so block ", layer,
                " would draft only, but it has '", tensor.name, "' and no 'nextn.eh_proj.weight'");
      } else {
        status_.Update(absl::UnimplementedError(absl::StrCat(
            "'", file_.path(), "': tensor '", tensor.name, "' is not part of a supported ", hyper.architecture,
            " model of ", hyper.layer_count(), " layers; computing without it would be wrong")));
      }
      return status_;
    }
    return absl::OkStatus();
  }

 private:
  // Some of Qwen's lack the matrix that joins a token to a hidden state.
  bool HasDraft(int64_t layer) const {
    const auto has = [&](const char* name) {
      return file_.FindTensor(absl::StrCat("blk.", layer, ".nextn.", name)) != nullptr;
    };
    return has("eh_proj.weight") || (has("enorm.weight") && has("hnorm.weight"));
  }

  template <typename... Parts>
  void Invalid(const Parts&... parts) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': ", parts...)));
  }

  const GgufFile& file_;
  std::string prefix_;
  absl::Status status_;
  absl::flat_hash_set<const GgufTensor*> used_;
};

// Finds the tensors of one layer, as its spec and the architecture have them.
class LayerFinder {
 public:
  LayerFinder(const Architecture& architecture, const LayerSpec& spec, int64_t hidden, TensorFinder& find,
              LayerTensors& layer)
      : architecture_(architecture), spec_(spec), hidden_(hidden), find_(find), layer_(layer) {}

  void FindAll() {
    FindNorms();
    if (spec_.recurrent()) {
      FindDeltaNet();
    } else {
      spec_.attention.latent() ? FindLatent() : FindQkv();
      FindAttentionRest();
    }
    spec_.ffn.kind == FfnKind::kExperts ? FindExperts() : FindDense();
  }

 private:
  void FindNorms() {
    if (spec_.pre_norms) {
      find_.Vector("attn_norm.weight", {hidden_}, true, layer_.attn_norm);
      const char* ffn_norm = architecture_.ffn_norm_after_attention ? "post_attention_norm.weight" : "ffn_norm.weight";
      find_.Vector(ffn_norm, {hidden_}, true, layer_.ffn_norm);
    }
    if (!spec_.post_norms) return;
    find_.Vector("post_attention_norm.weight", {hidden_}, true, layer_.attn_post_norm);
    find_.Vector("post_ffw_norm.weight", {hidden_}, true, layer_.ffn_post_norm);
  }

  void FindQkv() {
    const AttentionSpec& spec = spec_.attention;
    const int64_t q = spec.q_rows(), kv = spec.kv_width();
    find_.Matrix("attn_qkv.weight", {hidden_, q + 2 * kv}, false, layer_.attn_qkv);
    if (layer_.attn_qkv != nullptr) {
      if (spec.gated) return;  // gated attention has no biases
      return find_.Vector("attn_qkv.bias", {q + 2 * kv}, spec.qkv_bias, layer_.attn_qkv_bias);
    }
    find_.Matrix("attn_q.weight", {hidden_, q}, true, layer_.attn_q);
    find_.Matrix("attn_k.weight", {hidden_, kv}, true, layer_.attn_k);
    find_.Matrix("attn_v.weight", {hidden_, kv}, true, layer_.attn_v);
    if (spec.gated) return;
    find_.Vector("attn_q.bias", {q}, spec.qkv_bias, layer_.attn_q_bias);
    find_.Vector("attn_k.bias", {kv}, spec.qkv_bias, layer_.attn_k_bias);
    find_.Vector("attn_v.bias", {kv}, spec.qkv_bias, layer_.attn_v_bias);
  }

  void FindLatent() {
    const AttentionSpec& spec = spec_.attention;
    const int64_t q = spec.q_width(), r = spec.kv_rank;
    if (spec.q_rank > 0) {
      find_.Matrix("attn_q_a.weight", {hidden_, spec.q_rank}, true, layer_.attn_q_a);
      find_.Vector("attn_q_a_norm.weight", {spec.q_rank}, true, layer_.attn_q_a_norm);
      find_.Matrix("attn_q_b.weight", {spec.q_rank, q}, true, layer_.attn_q_b);
    } else {
      find_.Matrix("attn_q.weight", {hidden_, q}, true, layer_.attn_q);
    }
    find_.Matrix("attn_kv_a_mqa.weight", {hidden_, spec.key_dim()}, true, layer_.attn_kv_a);
    find_.Vector("attn_kv_a_norm.weight", {r}, true, layer_.attn_kv_a_norm);
    find_.Matrix("attn_k_b.weight", {spec.head_dim - spec.rope.dims, r, spec.heads}, true, layer_.attn_k_b);
    find_.Matrix("attn_v_b.weight", {r, spec.value_dim, spec.heads}, true, layer_.attn_v_b);
  }

  void FindAttentionRest() {
    const AttentionSpec& spec = spec_.attention;
    if (spec.qk_norm != QkNorm::kNone) {
      const bool whole = spec.qk_norm == QkNorm::kWhole;
      find_.Vector("attn_q_norm.weight", {whole ? spec.q_width() : spec.head_dim}, true, layer_.attn_q_norm);
      find_.Vector("attn_k_norm.weight", {whole ? spec.kv_width() : spec.head_dim}, true, layer_.attn_k_norm);
    }
    if (spec.sinks) find_.Vector("attn_sinks.weight", {spec.heads}, true, layer_.attn_sinks);
    find_.Matrix("attn_output.weight", {spec.output_width(), hidden_}, true, layer_.attn_output);
    find_.Vector("attn_output.bias", {hidden_}, architecture_.output_bias, layer_.attn_output_bias);
  }

  void FindDeltaNet() {
    const DeltaNetSpec& spec = spec_.delta_net;
    const int64_t heads = spec.value_heads, width = spec.value_width(), mixed = spec.conv_width();
    // Fused rows go by key head, as value heads do only where they are grouped. Files of grouped heads have ssm_ba:
    // without it some programs take the heads for dealt out, and nobody knows who is right.
    if (spec.grouped) find_.Matrix("ssm_in.weight", {hidden_, mixed + width}, false, layer_.mix_qkvz);
    if (layer_.mix_qkvz == nullptr) {
      find_.Matrix("attn_qkv.weight", {hidden_, mixed}, true, layer_.mix_qkv);
      find_.Matrix("attn_gate.weight", {hidden_, width}, true, layer_.mix_z);
    }
    if (spec.grouped) {
      find_.Matrix("ssm_ba.weight", {hidden_, 2 * heads}, true, layer_.mix_ba);
    } else {
      find_.Matrix("ssm_beta.weight", {hidden_, heads}, true, layer_.mix_beta);
      find_.Matrix("ssm_alpha.weight", {hidden_, heads}, true, layer_.mix_alpha);
    }
    find_.Vector("ssm_conv1d.weight", {spec.conv_kernel, mixed}, true, layer_.mix_conv);
    find_.Vector("ssm_dt.bias", {heads}, true, layer_.mix_dt);
    find_.Vector("ssm_a", {heads}, true, layer_.mix_decay);
    find_.Vector("ssm_norm.weight", {spec.head_dim}, true, layer_.mix_norm);
    find_.Matrix("ssm_out.weight", {width, hidden_}, true, layer_.mix_out);
  }

  void FindDense() {
    const int64_t width = spec_.ffn.width;
    find_.Matrix("ffn_gate.weight", {hidden_, width}, !architecture_.fused_gate_up, layer_.ffn_gate);
    const bool fused = layer_.ffn_gate == nullptr;
    find_.Matrix("ffn_up.weight", {hidden_, fused ? 2 * width : width}, true,
                 fused ? layer_.ffn_gate_up : layer_.ffn_up);
    find_.Matrix("ffn_down.weight", {width, hidden_}, true, layer_.ffn_down);
    if (fused) return;
    find_.Vector("ffn_gate.bias", {width}, false, layer_.ffn_gate_bias);
    find_.Vector("ffn_up.bias", {width}, false, layer_.ffn_up_bias);
    find_.Vector("ffn_down.bias", {hidden_}, false, layer_.ffn_down_bias);
  }

  void FindExperts() {
    const FfnSpec& ffn = spec_.ffn;
    const bool biases = architecture_.expert_biases;
    find_.Matrix("ffn_gate_inp.weight", {hidden_, ffn.experts}, true, layer_.router);
    find_.Vector("ffn_gate_inp.bias", {ffn.experts}, biases, layer_.router_bias);
    if (architecture_.selection_bias != Presence::kAbsent) {
      const bool required = architecture_.selection_bias == Presence::kRequired;
      find_.Vector("exp_probs_b.bias", {ffn.experts}, required, layer_.selection_bias);
    }
    find_.Matrix("ffn_gate_up_exps.weight", {hidden_, 2 * ffn.width, ffn.experts}, false, layer_.gate_up_exps);
    if (layer_.gate_up_exps == nullptr) {
      find_.Matrix("ffn_gate_exps.weight", {hidden_, ffn.width, ffn.experts}, true, layer_.gate_exps);
      find_.Matrix("ffn_up_exps.weight", {hidden_, ffn.width, ffn.experts}, true, layer_.up_exps);
    }
    find_.Matrix("ffn_down_exps.weight", {ffn.width, hidden_, ffn.experts}, true, layer_.down_exps);
    find_.Vector("ffn_gate_exps.bias", {ffn.width, ffn.experts}, biases, layer_.gate_exps_bias);
    find_.Vector("ffn_up_exps.bias", {ffn.width, ffn.experts}, biases, layer_.up_exps_bias);
    find_.Vector("ffn_down_exps.bias", {hidden_, ffn.experts}, biases, layer_.down_exps_bias);
    if (ffn.shared_width == 0) return;
    find_.Matrix("ffn_gate_shexp.weight", {hidden_, ffn.shared_width}, true, layer_.ffn_gate);
    find_.Matrix("ffn_up_shexp.weight", {hidden_, ffn.shared_width}, true, layer_.ffn_up);
    find_.Matrix("ffn_down_shexp.weight", {ffn.shared_width, hidden_}, true, layer_.ffn_down);
    if (ffn.shared_gated) find_.Vector("ffn_gate_inp_shexp.weight", {hidden_}, true, layer_.shared_gate);
  }

  const Architecture& architecture_;
  const LayerSpec& spec_;
  const int64_t hidden_;
  TensorFinder& find_;
  LayerTensors& layer_;
};

}  // namespace

std::vector<const GgufTensor*> LayerTensors::All() const {
  std::vector<const GgufTensor*> present;
  for (const GgufTensor* tensor :
       {attn_norm,      attn_q,         attn_k,         attn_v,       attn_qkv,   attn_q_bias,  attn_k_bias,
        attn_v_bias,    attn_qkv_bias,  attn_q_norm,    attn_k_norm,  attn_sinks, attn_q_a,     attn_q_a_norm,
        attn_q_b,       attn_kv_a,      attn_kv_a_norm, attn_k_b,     attn_v_b,   attn_output,  attn_output_bias,
        attn_post_norm, mix_qkv,        mix_z,          mix_qkvz,     mix_beta,   mix_alpha,    mix_ba,
        mix_conv,       mix_dt,         mix_decay,      mix_norm,     mix_out,    ffn_norm,     router,
        router_bias,    selection_bias, shared_gate,    gate_exps,    up_exps,    gate_up_exps, down_exps,
        gate_exps_bias, up_exps_bias,   down_exps_bias, ffn_gate,     ffn_up,     ffn_gate_up,  ffn_down,
        ffn_gate_bias,  ffn_up_bias,    ffn_down_bias,  ffn_post_norm}) {
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
  const Architecture& architecture = *FindArchitecture(hyper.architecture);
  TensorFinder find(*file);
  find.Matrix("token_embd.weight", {hyper.hidden, hyper.vocab}, true, model->token_embd);
  find.Vector("output_norm.weight", {hyper.hidden}, true, model->output_norm);
  find.Matrix("output.weight", {hyper.hidden, hyper.vocab}, false, model->output);
  if (model->output == nullptr) model->output = model->token_embd;
  find.Vector("output.bias", {hyper.vocab}, false, model->output_bias);
  if (const RopeParameters& rope = hyper.layers[0].attention.rope; rope.factors && rope.dims > 0) {
    find.Vector("rope_freqs.weight", {rope.dims / 2}, false, model->rope_freqs);
  }
  model->layers.resize(hyper.layers.size());
  for (size_t i = 0; i < hyper.layers.size(); ++i) {
    find.set_prefix(absl::StrCat("blk.", i, "."));
    LayerFinder(architecture, hyper.layers[i], hyper.hidden, find, model->layers[i]).FindAll();
    RETURN_IF_ERROR(find.status());
  }
  RETURN_IF_ERROR(find.CheckAllKnown(hyper, architecture));
  model->file = std::move(file);
  return std::shared_ptr<const ModelDescription>(std::move(model));
}

absl::StatusOr<int64_t> KvBytesPerTokenLayer(const AttentionSpec& attention, KvType kv_type) {
  for (const int64_t width : {attention.key_dim(), attention.cached_value_dim()}) {
    if (kv_type != KvType::kQ8_0 || width % kKvGroup == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("`kv_type` is q8_0, which keeps one scale per ", kKvGroup,
                                                   " dimensions of a head, but this model's heads have ", width,
                                                   "; use f16, bf16 or f32"));
  }
  return KvBytes(kv_type, attention.latent() ? attention.key_dim() : 2 * attention.kv_width());
}

}  // namespace stagecoach
