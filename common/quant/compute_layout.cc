#include "common/quant/compute_layout.h"

namespace stagecoach {

ActivationKind ActivationKindFor(TensorType weights, bool bf16_dot) {
  switch (weights) {
    case TensorType::kF32:
    case TensorType::kF16: return ActivationKind::kFloat;
    case TensorType::kBF16: return bf16_dot ? ActivationKind::kBf16 : ActivationKind::kFloat;
    default: return ActivationKind::kInt8;
  }
}

uint64_t PackedBytes(TensorType type, uint64_t file_bytes) {
  switch (type) {  // of 256 weights
    case TensorType::kQ3_K: return file_bytes / 110 * 114;
    case TensorType::kQ4_K: return file_bytes / 144 * 148;
    case TensorType::kQ5_K: return file_bytes / 176 * 180;
    case TensorType::kIQ4_XS: return file_bytes / 136 * 138;
    default: return file_bytes;
  }
}

}  // namespace stagecoach
