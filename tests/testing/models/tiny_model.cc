#include "tests/testing/models/tiny_model.h"

#include "common/base/check.h"
#include "common/quant/tensor_type.h"
#include "tests/testing/models/model_parts.h"

namespace stagecoach::testing {

TinyModelOptions WideTinyModel(TensorType type) {
  return {.layers = 4, .hidden = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .ffn = 256, .type = type};
}

GgufWriter TinyModel(TinyModelOptions o) {
  // A row that is no whole number of blocks would be of another type.
  for (const int64_t row : {o.hidden, o.ffn}) CHECK_EQ(row % GetTensorType(o.type).block_elements, 0);
  o.rotated = o.head_dim;
  o.qkv_biases = o.biases || o.architecture == "qwen2";
  o.output_bias = o.ffn_biases = o.biases && o.architecture == "llama";
  o.qk_norms = o.architecture == "qwen3";
  return TinyArchitectureModel(o);
}

std::string WriteTinyModel(const std::string& path, const TinyModelOptions& options) {
  return WriteModel(path, TinyModel(options), options.shards);
}

}  // namespace stagecoach::testing
