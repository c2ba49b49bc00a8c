#include "tests/testing/models/tiny_model.h"

#include "common/base/check.h"
#include "common/quant/tensor_type.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"

namespace stagecoach::testing {

TinyModelOptions WideTinyModel(TensorType type) {
  return {.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .ffn = 256, .type = type};
}

GgufWriter TinyModel(const TinyModelOptions& o) {
  // A row that is no whole number of blocks would be of another type.
  for (const int64_t row : {int64_t{o.hidden}, int64_t{o.ffn}}) CHECK_EQ(row % GetTensorType(o.type).block_elements, 0);
  const bool other_biases = o.biases && o.architecture == "llama";
  return TinyArchitectureModel({.architecture = o.architecture,
                                .layers = o.layers,
                                .vocab = o.vocab,
                                .context = o.context,
                                .hidden = o.hidden,
                                .ffn = o.ffn,
                                .ffn_of_layers = o.ffn_of_layers,
                                .type = o.type,
                                .vector_type = o.vector_type,
                                .lively = false,
                                .tied = o.tied,
                                .seed = o.seed,
                                .heads = o.heads,
                                .kv_heads = o.kv_heads,
                                .head_dim = o.head_dim,
                                .rotated = o.head_dim,
                                .qkv_biases = o.biases || o.architecture == "qwen2",
                                .output_bias = other_biases,
                                .fused_qkv = o.fused_qkv,
                                .qk_norms = o.architecture == "qwen3",
                                .freq_base = o.rope_freq_base,
                                .rope_scaling = o.rope_scaling,
                                .rope_factor = o.rope_scaling.empty() ? 0 : o.rope_factor,
                                .original_context = o.rope_original_context,
                                .rope_factors = o.rope_factors,
                                .ffn_biases = other_biases});
}

std::string WriteTinyModel(const std::string& path, const TinyModelOptions& options) {
  return WriteModel(path, TinyModel(options), options.shards);
}

}  // namespace stagecoach::testing
