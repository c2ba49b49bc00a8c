#ifndef STAGECOACH_COMMON_MODEL_LAYER_TENSORS_H_
#define STAGECOACH_COMMON_MODEL_LAYER_TENSORS_H_

#include <string>

#include "absl/status/status.h"
#include "common/model/architectures.h"
#include "common/model/layer_spec.h"
#include "common/model/model_description.h"
#include "common/model/tensor_directory.h"

namespace stagecoach {

// Finds the tensors of a layer, whose names begin with `prefix` ("blk.3."), as its spec and the architecture have them.
absl::Status FindLayerTensors(const Architecture& architecture, const LayerSpec& spec, int64_t hidden,
                              const std::string& prefix, TensorDirectory& find, LayerTensors& layer);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_LAYER_TENSORS_H_
