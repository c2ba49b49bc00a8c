#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "common/quant/quantize_k.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// A scale below the smallest normal float has no finite inverse; as fp16 it is zero anyway.
float InverseScale(float scale) { return std::fabs(scale) < FLT_MIN ? 0.0f : 1.0f / scale; }

void EncodeQ8_0(const float* in, uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    CHECK(std::isfinite(in[j]));
    largest = std::max(largest, std::fabs(in[j]));
  }
  const float scale = largest / 127.0f;
  const float inverse = InverseScale(scale);
  StoreHalf(scale, block);
  for (int j = 0; j < 32; ++j) {
    const int8_t value = static_cast<int8_t>(std::round(in[j] * inverse));
    std::memcpy(block + 2 + j, &value, 1);
  }
}

// The value of the largest magnitude (the first of several) gets the code 0, which means -8: the scale has the opposite
// sign. Halves round up.
void EncodeQ4_0(const float* in, uint8_t* block) {
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    CHECK(std::isfinite(in[j]));
    if (std::fabs(in[j]) > std::fabs(extreme)) extreme = in[j];
  }
  const float scale = extreme / -8.0f;
  const float inverse = InverseScale(scale);
  const auto code = [&](float x) { return std::min(15, static_cast<int>(x * inverse + 8.5f)); };
  StoreHalf(scale, block);
  for (int j = 0; j < 16; ++j) block[2 + j] = static_cast<uint8_t>(code(in[j]) | (code(in[j + 16]) << 4));
}

// The mean magnitude is the scale of the least squared error for codes that are signs.
void EncodeQ1_0(const float* in, uint8_t* block) {
  float sum = 0;
  for (int j = 0; j < 128; ++j) {
    CHECK(std::isfinite(in[j]));
    sum += std::fabs(in[j]);
  }
  StoreHalf(sum / 128.0f, block);
  std::memset(block + 2, 0, 16);
  for (int j = 0; j < 128; ++j) block[2 + j / 8] |= static_cast<uint8_t>(in[j] >= 0 ? 1 << (j % 8) : 0);
}

using EncodeBlock = void (*)(const float* in, uint8_t* block);

// nullptr for types of one element a block and for those that nothing here encodes.
EncodeBlock BlockEncoder(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0: return EncodeQ8_0;
    case TensorType::kQ4_0: return EncodeQ4_0;
    case TensorType::kQ4_K: return EncodeQ4_K;
    case TensorType::kQ6_K: return EncodeQ6_K;
    case TensorType::kQ1_0: return EncodeQ1_0;
    default: return nullptr;
  }
}

}  // namespace

bool CanQuantize(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16 ||
         BlockEncoder(type) != nullptr;
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
    const EncodeBlock encode = BlockEncoder(type);
    for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) encode(in + i, row);
  }
}

}  // namespace stagecoach
