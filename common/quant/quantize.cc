#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

void EncodeQ8_0(const float* in, uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    CHECK(std::isfinite(in[j]));
    largest = std::max(largest, std::fabs(in[j]));
  }
  const float scale = largest / 127.0f;
  // A scale below the smallest normal float has no finite inverse; as fp16 it is zero anyway.
  const float inverse = scale < FLT_MIN ? 0.0f : 1.0f / scale;
  StoreHalf(scale, block);
  for (int j = 0; j < 32; ++j) {
    const int8_t value = static_cast<int8_t>(std::round(in[j] * inverse));
    std::memcpy(block + 2 + j, &value, 1);
  }
}

}  // namespace

bool CanQuantize(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kQ8_0:
      return true;
    default:
      return false;
  }
}

void QuantizeRow(TensorType type, const float* in, int64_t elements, uint8_t* row) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK(CanQuantize(type));
  CHECK_EQ(elements % info.block_elements, 0);
  if (type == TensorType::kF32) {
    if (elements > 0) std::memcpy(row, in, static_cast<size_t>(elements) * sizeof(float));
  } else if (type == TensorType::kF16) {
    for (int64_t i = 0; i < elements; ++i) StoreHalf(in[i], row + 2 * i);
  } else if (type == TensorType::kBF16) {
    for (int64_t i = 0; i < elements; ++i) StoreU16(FloatToBf16(in[i]), row + 2 * i);
  } else {
    for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) EncodeQ8_0(in + i, row);
  }
}

}  // namespace stagecoach
