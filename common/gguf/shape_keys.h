#ifndef STAGECOACH_COMMON_GGUF_SHAPE_KEYS_H_
#define STAGECOACH_COMMON_GGUF_SHAPE_KEYS_H_

// The keys of a header that tell a model's shape: general.architecture and those below its prefix. Pure.

#include <string>
#include <utility>
#include <vector>

#include "common/gguf/gguf_file.h"
#include "common/gguf/model_shapes.h"

namespace stagecoach {

// In the order in which converters write them.
std::vector<std::pair<std::string, GgufValue>> ShapeKeys(const ModelShape& shape);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_SHAPE_KEYS_H_
