#include "stage_worker/model/stage_layer.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {
namespace {

template <typename T>
size_t PlaceOf(const T& value, const std::vector<T>& values) {
  const auto at = std::find(values.begin(), values.end(), value);
  CHECK(at != values.end());
  return static_cast<size_t>(at - values.begin());
}

}  // namespace

std::vector<StageLayer> MakeLayers(const ModelDescription& model, int64_t first_layer,
                                   const std::vector<LayerWeights>& weights, const LayerScratchSizes& sizes,
                                   const Kernels& kernels) {
  const LayerSpec* const specs = &model.hyper.layers[static_cast<size_t>(first_layer)];
  const LayerTensors* const tensors = &model.layers[static_cast<size_t>(first_layer)];
  std::vector<StageLayer> layers;
  std::vector<int64_t> pool_layers(static_cast<size_t>(model.hyper.block_groups()));
  for (size_t i = 0; i < weights.size(); ++i) {
    const AttentionSpec& attention = specs[i].attention;
    const bool rotates = attention.rope.dims > 0;
    layers.push_back({.spec = specs[i],
                      .weights = weights[i],
                      .pool_layer = pool_layers[static_cast<size_t>(specs[i].block_group)]++,
                      .walks = PlaceOf(AttentionSizes::Of(attention, sizes.limits), sizes.walks),
                      .angles = rotates ? static_cast<int32_t>(PlaceOf(attention.rope, sizes.ropes)) : -1,
                      .forms = InputFormsOf(tensors[i], kernels.bf16_dot)});
  }
  return layers;
}

}  // namespace stagecoach
