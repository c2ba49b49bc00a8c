// The sizes of panels, and the names of what kernels work on. One layout for all instruction sets.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

template <TensorType kType>
constexpr IntegerLayout kLayout = LayoutOf(kType);

constexpr size_t Aligned(size_t bytes) { return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes; }

}  // namespace

size_t KvTileBytes(KvType type, int64_t head_dim) {
  return static_cast<size_t>(KvBytes(type, head_dim * kTilePositions));
}

ActivationKind ActivationKindFor(const Kernels& kernels, TensorType weights) {
  return ActivationKindFor(weights, kernels.bf16_dot);
}

const IntegerLayout* FindIntegerLayout(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: return nullptr;
    case TensorType::kQ4_0: return &kLayout<TensorType::kQ4_0>;
    case TensorType::kQ4_1: return &kLayout<TensorType::kQ4_1>;
    case TensorType::kQ5_0: return &kLayout<TensorType::kQ5_0>;
    case TensorType::kQ5_1: return &kLayout<TensorType::kQ5_1>;
    case TensorType::kQ8_0: return &kLayout<TensorType::kQ8_0>;
    case TensorType::kQ2_K: return &kLayout<TensorType::kQ2_K>;
    case TensorType::kQ3_K: return &kLayout<TensorType::kQ3_K>;
    case TensorType::kQ4_K: return &kLayout<TensorType::kQ4_K>;
    case TensorType::kQ5_K: return &kLayout<TensorType::kQ5_K>;
    case TensorType::kQ6_K: return &kLayout<TensorType::kQ6_K>;
    case TensorType::kIQ4_NL: return &kLayout<TensorType::kIQ4_NL>;
    case TensorType::kIQ4_XS: return &kLayout<TensorType::kIQ4_XS>;
    case TensorType::kTQ1_0: return &kLayout<TensorType::kTQ1_0>;
    case TensorType::kTQ2_0: return &kLayout<TensorType::kTQ2_0>;
    case TensorType::kMXFP4: return &kLayout<TensorType::kMXFP4>;
    case TensorType::kQ1_0: return &kLayout<TensorType::kQ1_0>;
    case TensorType::kQ2_0: return &kLayout<TensorType::kQ2_0>;
    case TensorType::kPQ2_0: return &kLayout<TensorType::kPQ2_0>;
    case TensorType::kQ2_0_Oxi: return &kLayout<TensorType::kQ2_0_Oxi>;
  }
  CHECK(false);
}

int FileScaleAt(TensorType type) {
  switch (type) {
    case TensorType::kQ2_K: return 80;
    case TensorType::kQ3_K: return 108;
    case TensorType::kQ6_K: return 208;
    case TensorType::kTQ1_0: return 52;
    case TensorType::kTQ2_0: return 64;
    case TensorType::kQ2_0_Oxi: return 32;
    default: return 0;
  }
}

PanelSections SectionsOf(TensorType type, int64_t cols) {
  const IntegerLayout& layout = *FindIntegerLayout(type);
  const size_t columns = static_cast<size_t>(cols);
  PanelSections sections;
  sections.sub_scales = Aligned(columns / layout.scale_columns * layout.scale_bytes);
  sections.codes = sections.sub_scales + Aligned(columns / kCodeBlock * layout.sub_scale_bytes);
  const size_t vectors = layout.codes == CodeFormat::kTrits ? columns / kTritsColumns * kTritsVectors
                                                            : columns / kCodeBlock * layout.vectors;
  sections.bytes = sections.codes + vectors * kVectorBytes;
  return sections;
}

size_t PanelBytes(TensorType type, int64_t cols) {
  if (FindIntegerLayout(type) == nullptr) return Aligned(kPanelRows * RowBytes(type, cols));
  return SectionsOf(type, cols).bytes;
}

}  // namespace stagecoach
