#ifndef STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/layer_spec.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/matmul_input.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// One layer as the steps run it: all that no step changes.
struct StageLayer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  int64_t index = 0;  // within this stage, and so in its KV pool

  // In which forms the matrices want their inputs.
  InputForms qkv_input;     // q, k and v; D wide
  InputForms output_input;  // attn_output; Nq*H wide
  InputForms ffn_input;     // gate and up; D wide
  InputForms down_input;    // down; F wide
};

// The layers of a stage. `specs` and `weights`, one a layer, outlive them.
std::vector<StageLayer> MakeLayers(absl::Span<const LayerSpec> specs, const std::vector<LayerWeights>& weights,
                                   const Kernels& kernels);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_
