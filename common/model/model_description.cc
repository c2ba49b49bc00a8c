#include "common/model/model_description.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/model/architectures.h"
#include "common/model/layer_tensors.h"
#include "common/model/tensor_directory.h"

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
  const Architecture& architecture = *FindArchitecture(hyper.architecture);
  TensorDirectory find(*file);
  RETURN_IF_ERROR(find.Matrix("token_embd.weight", hyper.vocab, hyper.hidden, true, model->token_embd));
  RETURN_IF_ERROR(find.Vector("output_norm.weight", hyper.hidden, true, model->output_norm));
  RETURN_IF_ERROR(find.Matrix("output.weight", hyper.vocab, hyper.hidden, false, model->output));
  if (model->output == nullptr) model->output = model->token_embd;
  RETURN_IF_ERROR(find.Vector("output.bias", hyper.vocab, false, model->output_bias));
  if (const RopeParameters& rope = hyper.layers[0].attention.rope; rope.factors && rope.dims > 0) {
    RETURN_IF_ERROR(find.Vector("rope_freqs.weight", rope.dims / 2, false, model->rope_freqs));
  }
  model->layers.resize(hyper.layers.size());
  for (size_t i = 0; i < hyper.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("blk.", i, ".");
    RETURN_IF_ERROR(FindLayerTensors(architecture, hyper.layers[i], hyper.hidden, prefix, find, model->layers[i]));
  }
  RETURN_IF_ERROR(find.CheckAllKnown(hyper));
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
