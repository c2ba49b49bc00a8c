#include <algorithm>

#include "common/quant/supported_types.h"
#include "stage_worker/kernels/panel_layout.h"
#include "tests/unit/stage_worker/kernels/kernel_inputs.h"

namespace stagecoach {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kBeyond = 64;  // bytes behind a panel that nobody writes

Bytes RandomBytes(uint64_t seed, size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(UniformAt(seed, i) * 256);
  return bytes;
}

// Of memory that held something else before.
Bytes Pack(const Kernels& kernels, TensorType type, const Bytes& rows, size_t stride, int count, int64_t cols) {
  Bytes panel(PanelBytes(type, cols) + kBeyond, 0xa5);
  kernels.pack_panel(type, rows.data(), stride, count, cols, panel.data());
  return panel;
}

std::string DifferenceOfBytes(const Bytes& expected, const Bytes& found) {
  const auto [at, other] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  if (at == expected.end() && other == found.end()) return "";
  return "byte " + std::to_string(at - expected.begin()) + " of " + std::to_string(expected.size());
}

// Of a few blocks, odd numbers of them among these, so that sections need filling up; rows of floats of any length.
std::vector<int64_t> ColumnsToTry(TensorType type) {
  if (type == TensorType::kF32) return {1, 3, 15, 16, 17, 33, 64};
  if (FindIntegerLayout(type) == nullptr) return {2, 30, 32, 34, 66, 128};
  const int64_t block = GetTensorType(type).block_elements;
  return {block, 2 * block, 3 * block, 7 * block};
}

TEST(PackPanel, GivesTheScalarPackersBytesForRowsOfAnyBits) {
  VECTOR_KERNELS_OR_SKIP(vector_kernels);
  for (TensorType type : SupportedTypes()) {
    for (int64_t cols : ColumnsToTry(type)) {
      const size_t row_bytes = RowBytes(type, cols);
      for (size_t stride : {row_bytes, row_bytes + 3}) {
        // Not a byte more than the rows: the address sanitizer sees what reads beyond them.
        const Bytes rows = RandomBytes(static_cast<uint64_t>(cols), (kPanelRows - 1) * stride + row_bytes);
        for (int count : {1, 2, 3, 4, 5, 11, 15, 16}) {
          const Bytes some(rows.begin(), rows.begin() + static_cast<int64_t>((count - 1) * stride + row_bytes));
          const Bytes expected = Pack(Scalar(), type, some, stride, count, cols);
          for (const Kernels* kernels : vector_kernels) {
            ASSERT_EQ(DifferenceOfBytes(expected, Pack(*kernels, type, some, stride, count, cols)), "")
                << kernels->isa << " " << GetTensorType(type).name << ": " << count << " rows of " << cols;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
