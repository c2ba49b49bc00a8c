#include "stage_worker/model/stage_layer.h"

#include "common/base/check.h"

namespace stagecoach {

std::vector<StageLayer> MakeLayers(const ModelDescription& model, int64_t first_layer,
                                   const std::vector<LayerWeights>& weights, const Kernels& kernels) {
  const LayerSpec* const specs = &model.hyper.layers[static_cast<size_t>(first_layer)];
  const LayerTensors* const tensors = &model.layers[static_cast<size_t>(first_layer)];
  std::vector<StageLayer> layers;
  std::vector<int64_t> pool_layers(static_cast<size_t>(model.hyper.block_groups()));
  for (size_t i = 0; i < weights.size(); ++i) {
    // What a model is refused for when it is opened.
    CHECK(specs[i].attention.kind == AttentionKind::kFull && specs[i].ffn.kind == FfnKind::kDense);
    CHECK(specs[i].attention == specs[0].attention);
    layers.push_back({.spec = specs[i],
                      .weights = weights[i],
                      .pool_layer = pool_layers[static_cast<size_t>(specs[i].block_group)]++,
                      .forms = InputFormsOf(tensors[i], kernels.bf16_dot)});
  }
  return layers;
}

}  // namespace stagecoach
