#include "common/quant/compute_layout.h"
#include "common/quant/supported_types.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

TEST(PackedBytes, AreThoseOfTheKernelsPanels) {
  constexpr int64_t kCols = 4096;  // sections of a panel of so many columns need no padding
  for (const TensorType type : SupportedTypes()) {
    EXPECT_EQ(PackedBytes(type, kPanelRows * RowBytes(type, kCols)), PanelBytes(type, kCols))
        << GetTensorType(type).name;
  }
}

}  // namespace
}  // namespace stagecoach
