#ifndef STAGECOACH_COMMON_QUANT_BLOCK_SCALES_H_
#define STAGECOACH_COMMON_QUANT_BLOCK_SCALES_H_

#include "common/quant/tensor_type.h"

namespace stagecoach {

// Where a block has its scale and its minimum, both fp16. MXFP4's only scale is its first byte, an E8M0 exponent.
struct BlockScales {
  TensorType type;
  int scale_at;          // bytes into the block
  bool has_min = false;  // the minimum follows the scale
};

// All types of blocks but MXFP4.
inline constexpr BlockScales kBlockScales[] = {
    {TensorType::kQ8_0, 0},       {TensorType::kQ4_0, 0},       {TensorType::kQ4_1, 0, true},  {TensorType::kQ5_0, 0},
    {TensorType::kQ5_1, 0, true}, {TensorType::kIQ4_NL, 0},     {TensorType::kQ2_K, 80, true}, {TensorType::kQ3_K, 108},
    {TensorType::kQ4_K, 0, true}, {TensorType::kQ5_K, 0, true}, {TensorType::kQ6_K, 208},      {TensorType::kIQ4_XS, 0},
    {TensorType::kTQ1_0, 52},     {TensorType::kTQ2_0, 64},     {TensorType::kQ1_0, 0},        {TensorType::kQ2_0, 0},
    {TensorType::kPQ2_0, 0},      {TensorType::kQ2_0_Oxi, 32},
};

// nullptr for the plain float types and MXFP4.
constexpr const BlockScales* FindBlockScales(TensorType type) {
  for (const BlockScales& scales : kBlockScales) {
    if (scales.type == type) return &scales;
  }
  return nullptr;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_BLOCK_SCALES_H_
