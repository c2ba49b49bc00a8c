#ifndef STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_
#define STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_

#include <cstdint>
#include <vector>

#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// One layer as the steps run it: all that no step changes.
struct StageLayer {
  const LayerSpec& spec;
  const LayerWeights& weights;
  int64_t pool_layer = 0;  // its place among the layers of this stage that share its KV pool
  size_t walks = 0;        // which of StepPlan's walks are its attention's
  int32_t angles = -1;     // which of StepScratch's angles it rotates by; -1: it does not rotate

  LayerInputForms forms;
};

// The layers of a stage, which begin with the model's `first_layer`, with the places that their walks and angles have
// in `sizes`. The model and `weights`, one a layer, outlive them.
std::vector<StageLayer> MakeLayers(const ModelDescription& model, int64_t first_layer,
                                   const std::vector<LayerWeights>& weights, const LayerScratchSizes& sizes,
                                   const Kernels& kernels);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_STAGE_LAYER_H_
