#ifndef STAGECOACH_COMMON_QUANT_COMPUTE_LAYOUT_H_
#define STAGECOACH_COMMON_QUANT_COMPUTE_LAYOUT_H_

// What the kernels' layouts of weights and activations mean for memory, which the planner counts and the stages take.

#include <cstdint>

#include "common/quant/tensor_type.h"

namespace stagecoach {

inline constexpr int kPanelRows = 16;          // output rows of a panel of weights = lanes
inline constexpr int kActivationGroup = 32;    // activations that share one scale
inline constexpr int kAttentionGranule = 256;  // absolute positions whose softmax partials are merged in order

// What the kernels' layout takes for `file_bytes` of a matrix, but for the padding of its last panel: as much as the
// file, except where scales of six bits or less become bytes.
constexpr uint64_t PackedBytes(TensorType type, uint64_t file_bytes) {
  switch (type) {  // of 256 weights
    case TensorType::kQ3_K: return file_bytes / 110 * 114;
    case TensorType::kQ4_K: return file_bytes / 144 * 148;
    case TensorType::kQ5_K: return file_bytes / 176 * 180;
    case TensorType::kIQ4_XS: return file_bytes / 136 * 138;
    default: return file_bytes;
  }
}

// How a matrix wants its input: float rows, rows quantised to int8, or rows rounded to bfloat16.
enum class ActivationKind { kFloat, kInt8, kBf16 };

// `bf16_dot`: whether the instruction set multiplies BF16 by BF16.
constexpr ActivationKind ActivationKindFor(TensorType weights, bool bf16_dot) {
  switch (weights) {
    case TensorType::kF32:
    case TensorType::kF16: return ActivationKind::kFloat;
    case TensorType::kBF16: return bf16_dot ? ActivationKind::kBf16 : ActivationKind::kFloat;
    default: return ActivationKind::kInt8;
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_COMPUTE_LAYOUT_H_
