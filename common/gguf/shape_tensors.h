#ifndef STAGECOACH_COMMON_GGUF_SHAPE_TENSORS_H_
#define STAGECOACH_COMMON_GGUF_SHAPE_TENSORS_H_

// The tensors of a shape's file, in the order of the layers. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/model_shapes.h"

namespace stagecoach {

// What decides a tensor's type beside the type that was asked for.
enum class ShapeTensorKind {
  kFloats,    // norms, biases, sinks, the router: F32 in every file
  kMatrix,    //
  kMoreBits,  // the mixes of types give it more where it matters: attn_v, ffn_down
  kFusedQkv,  // q, k and v
  kHead,      // the output matrix, also when it is the embedding
};

struct ShapeTensor {
  std::string name;
  std::vector<int64_t> dims;  // the row length first
  ShapeTensorKind kind = ShapeTensorKind::kMatrix;
  int64_t layer = -1;    // -1: of none
  bool experts = false;  // one matrix of each expert: dims[2] of them
};

std::vector<ShapeTensor> ShapeTensors(const ModelShape& shape);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_SHAPE_TENSORS_H_
