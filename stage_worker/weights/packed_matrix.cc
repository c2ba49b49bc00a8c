#include "stage_worker/weights/packed_matrix.h"

#include <cstring>

#include "common/base/check.h"

namespace stagecoach {
namespace {

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// [block]{ 16 fp16 scales, 8 groups x 16 rows x 4 values + 128 }
void UnpackQ80(const uint8_t* panel, int64_t lane, int64_t cols, float* out) {
  constexpr int64_t kScaleBytes = kPanelRows * 2;
  constexpr int64_t kBlock = 32;
  for (int64_t b = 0; b < cols / kBlock; ++b) {
    const uint8_t* block = panel + b * (kScaleBytes + kBlock * kPanelRows);
    const float scale = HalfToFloat(LoadU16(block + lane * 2));
    for (int64_t k = 0; k < kBlock; ++k) {
      const uint8_t value = block[kScaleBytes + (k / 4 * kPanelRows + lane) * 4 + k % 4];
      out[b * kBlock + k] = scale * static_cast<float>(static_cast<int>(value) - 128);
    }
  }
}

}  // namespace

void PackedMatrix::UnpackRow(int64_t row, float* out) const {
  const uint8_t* panel = data + static_cast<size_t>(row / kPanelRows) * PanelBytes(type, cols);
  const int64_t lane = row % kPanelRows;
  switch (type) {
    case TensorType::kF32:
      for (int64_t k = 0; k < cols; ++k) std::memcpy(&out[k], panel + (k * kPanelRows + lane) * 4, 4);
      return;
    case TensorType::kF16:
    case TensorType::kBF16:
      for (int64_t k = 0; k < cols; ++k) {
        const uint16_t bits = LoadU16(panel + ((k / 2 * kPanelRows + lane) * 2 + k % 2) * 2);
        out[k] = type == TensorType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
      }
      return;
    case TensorType::kQ8_0:
      UnpackQ80(panel, lane, cols, out);
      return;
    default: break;
  }
  CHECK(false);
}

}  // namespace stagecoach
