// The packed layouts, and the names of what kernels work on.

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

constexpr int kQ8Block = 32;
constexpr size_t kQ8FileBlockBytes = 2 + kQ8Block;
constexpr size_t kQ8PanelBlockBytes = kPanelRows * kQ8FileBlockBytes;

// F32: [k][lane]
void PackF32(const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  for (int64_t k = 0; k < cols; ++k) std::memcpy(panel + (k * kPanelRows + lane) * 4, row + k * 4, 4);
}

// F16, BF16: [k / 2][lane][k % 2]
void PackPairs(const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  for (int64_t pair = 0; pair < cols / 2; ++pair)
    std::memcpy(panel + (pair * kPanelRows + lane) * 4, row + pair * 4, 4);
}

// Q8_0: blocks of 16 scales, then [group of 4][lane][4], biased by 128 so that the dot instruction can take them as
// unsigned.
void PackQ8(const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  for (int64_t block = 0; block < cols / kQ8Block; ++block) {
    const uint8_t* in = row + block * kQ8FileBlockBytes;
    uint8_t* out = panel + block * kQ8PanelBlockBytes;
    std::memcpy(out + lane * 2, in, 2);
    for (int group = 0; group < kQ8Block / 4; ++group) {
      uint32_t four;
      std::memcpy(&four, in + 2 + group * 4, 4);
      four ^= 0x80808080u;  // int8 + 128
      std::memcpy(out + 2 * kPanelRows + (group * kPanelRows + lane) * 4, &four, 4);
    }
  }
}

// Rows beyond the matrix: the values are zero, which for Q8_0 is a zero scale and the biased byte 128.
void ClearPanel(TensorType type, int64_t cols, uint8_t* panel) {
  std::memset(panel, 0, PanelBytes(type, cols));
  if (type != TensorType::kQ8_0) return;
  for (int64_t block = 0; block < cols / kQ8Block; ++block) {
    std::memset(panel + block * kQ8PanelBlockBytes + 2 * kPanelRows, 0x80, kPanelRows * kQ8Block);
  }
}

}  // namespace

absl::StatusOr<KvType> ParseKvType(absl::string_view name) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    if (name == KvTypeName(type)) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown KV type '", name, "', expected one of: f32, f16, bf16"));
}

const char* KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32: return "f32";
    case KvType::kF16: return "f16";
    case KvType::kBF16: return "bf16";
  }
  return "?";
}

size_t KvTypeBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

ActivationKind ActivationKindFor(TensorType weights) {
  return weights == TensorType::kQ8_0 ? ActivationKind::kInt8 : ActivationKind::kFloat;
}

size_t PanelBytes(TensorType type, int64_t cols) { return kPanelRows * RowBytes(type, cols); }

void PackPanel(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols, uint8_t* panel) {
  if (row_count < kPanelRows) ClearPanel(type, cols, panel);
  for (int lane = 0; lane < row_count; ++lane) {
    const uint8_t* row = rows + lane * row_stride;
    switch (type) {
      case TensorType::kF32: PackF32(row, lane, cols, panel); break;
      case TensorType::kF16:
      case TensorType::kBF16: PackPairs(row, lane, cols, panel); break;
      case TensorType::kQ8_0: PackQ8(row, lane, cols, panel); break;
      default: CHECK(false);
    }
  }
}

}  // namespace stagecoach
