#include "common/model/footprint.h"

namespace stagecoach {
namespace {

double BytesOf(const GgufTensor* tensor) { return tensor == nullptr ? 0 : static_cast<double>(tensor->bytes); }

}  // namespace

ModelCosts CostsOf(const ModelDescription& model) {
  ModelCosts costs;
  for (const LayerTensors& layer : model.layers) {
    double bytes = 0;
    for (const GgufTensor* tensor : layer.All()) bytes += BytesOf(tensor);
    costs.layer_bytes.push_back(bytes);
  }
  costs.embedding_bytes = BytesOf(model.token_embd);
  costs.head_bytes = BytesOf(model.output_norm) + BytesOf(model.output) + BytesOf(model.output_bias);
  costs.shared_bytes = BytesOf(model.rope_freqs);
  costs.tied = model.tied();
  return costs;
}

uint64_t StageWeightBytes(const ModelDescription& model, int64_t first_layer, int64_t last_layer, bool owns_embedding,
                          bool owns_head) {
  uint64_t bytes = 0;
  for (const GgufTensor* tensor : model.StageTensors(first_layer, last_layer, owns_embedding, owns_head)) {
    bytes += tensor->bytes;
  }
  return bytes;
}

}  // namespace stagecoach
