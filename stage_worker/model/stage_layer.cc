#include "stage_worker/model/stage_layer.h"

#include "common/base/check.h"

namespace stagecoach {

std::vector<StageLayer> MakeLayers(absl::Span<const LayerSpec> specs, const std::vector<LayerWeights>& weights,
                                   const Kernels& kernels) {
  CHECK_EQ(specs.size(), weights.size());
  std::vector<StageLayer> layers;
  for (size_t i = 0; i < specs.size(); ++i) {
    const LayerSpec& spec = specs[i];
    const LayerWeights& w = weights[i];
    // What a model is refused for when it is opened.
    CHECK(spec.attention.kind == AttentionKind::kFull && spec.ffn.kind == FfnKind::kDense);
    CHECK(spec.attention == specs[0].attention);
    layers.push_back({.spec = spec,
                      .weights = w,
                      .index = static_cast<int64_t>(i),
                      .qkv_input = InputForms::Of(kernels, {&w.q, &w.k, &w.v}),
                      .output_input = InputForms::Of(kernels, {&w.attn_output}),
                      .ffn_input = InputForms::Of(kernels, {&w.gate, &w.up}),
                      .down_input = InputForms::Of(kernels, {&w.down})});
  }
  return layers;
}

}  // namespace stagecoach
