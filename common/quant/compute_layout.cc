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

}  // namespace stagecoach
