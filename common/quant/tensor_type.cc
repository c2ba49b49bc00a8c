#include "common/quant/tensor_type.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace stagecoach {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian and is used in place");

constexpr int64_t kQ8Elements = 32;
constexpr size_t kQ8Bytes = 34;  // fp16 scale, then 32 signed bytes

// Block sizes as in the GGUF specification. Ids that are missing here were removed from the format (4, 5, 31 to 33, 36
// to 38) or belong to other programs. 142 and 143 are PrismML's.
constexpr TensorTypeInfo kTypes[] = {
    {0, "F32", 1, 4, true},          {1, "F16", 1, 2, true},          {2, "Q4_0", 32, 18, false},
    {3, "Q4_1", 32, 20, false},      {6, "Q5_0", 32, 22, false},      {7, "Q5_1", 32, 24, false},
    {8, "Q8_0", 32, 34, true},       {9, "Q8_1", 32, 36, false},      {10, "Q2_K", 256, 84, false},
    {11, "Q3_K", 256, 110, false},   {12, "Q4_K", 256, 144, false},   {13, "Q5_K", 256, 176, false},
    {14, "Q6_K", 256, 210, false},   {15, "Q8_K", 256, 292, false},   {16, "IQ2_XXS", 256, 66, false},
    {17, "IQ2_XS", 256, 74, false},  {18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
    {20, "IQ4_NL", 32, 18, false},   {21, "IQ3_S", 256, 110, false},  {22, "IQ2_S", 256, 82, false},
    {23, "IQ4_XS", 256, 136, false}, {24, "I8", 1, 1, false},         {25, "I16", 1, 2, false},
    {26, "I32", 1, 4, false},        {27, "I64", 1, 8, false},        {28, "F64", 1, 8, false},
    {29, "IQ1_M", 256, 56, false},   {30, "BF16", 1, 2, true},        {34, "TQ1_0", 256, 54, false},
    {35, "TQ2_0", 256, 66, false},   {39, "MXFP4", 32, 17, false},    {40, "NVFP4", 64, 36, false},
    {41, "Q1_0", 128, 18, false},    {42, "Q2_0", 64, 18, false},     {142, "PQ2_0", 128, 34, false},
    {143, "PTQ1_0", 128, 28, false},
};

uint16_t LoadU16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

void StoreU16(uint16_t bits, uint8_t* p) { std::memcpy(p, &bits, sizeof(bits)); }

void QuantizeQ8Block(const float* in, uint8_t* block) {
  float largest = 0;
  for (int64_t i = 0; i < kQ8Elements; ++i) {
    CHECK(std::isfinite(in[i]));
    largest = std::max(largest, std::fabs(in[i]));
  }
  const float scale = largest / 127.0f;
  // A scale below the smallest normal float has no finite inverse; as fp16 it is zero anyway.
  const float inverse = scale < FLT_MIN ? 0.0f : 1.0f / scale;
  StoreU16(FloatToHalf(scale), block);
  for (int64_t i = 0; i < kQ8Elements; ++i) {
    const int8_t value = static_cast<int8_t>(std::round(in[i] * inverse));
    std::memcpy(block + 2 + i, &value, 1);
  }
}

void DequantizeQ8Block(const uint8_t* block, float* out) {
  const float scale = HalfToFloat(LoadU16(block));
  for (int64_t i = 0; i < kQ8Elements; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

}  // namespace

const TensorTypeInfo* FindTensorType(uint32_t id) {
  for (const TensorTypeInfo& info : kTypes) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& GetTensorType(TensorType type) {
  const TensorTypeInfo* info = FindTensorType(static_cast<uint32_t>(type));
  CHECK(info != nullptr && info->supported);
  return *info;
}

std::string SupportedTensorTypes() {
  // The order people know: plain floats first.
  std::string names;
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}) {
    if (!names.empty()) names += ", ";
    names += GetTensorType(type).name;
  }
  return names;
}

size_t RowBytes(TensorType type, int64_t elements) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK_GE(elements, 0);
  CHECK_EQ(elements % info.block_elements, 0);
  return static_cast<size_t>(elements) / info.block_elements * info.block_bytes;
}

void DequantizeRow(TensorType type, const uint8_t* row, int64_t elements, float* out) {
  CHECK_EQ(elements % GetTensorType(type).block_elements, 0);
  switch (type) {
    case TensorType::kF32:
      if (elements > 0) std::memcpy(out, row, static_cast<size_t>(elements) * sizeof(float));
      return;
    case TensorType::kF16:
      for (int64_t i = 0; i < elements; ++i) out[i] = HalfToFloat(LoadU16(row + 2 * i));
      return;
    case TensorType::kBF16:
      for (int64_t i = 0; i < elements; ++i) out[i] = Bf16ToFloat(LoadU16(row + 2 * i));
      return;
    case TensorType::kQ8_0:
      for (int64_t i = 0; i < elements; i += kQ8Elements, row += kQ8Bytes) DequantizeQ8Block(row, out + i);
      return;
    default: CHECK(false);
  }
}

void QuantizeRow(TensorType type, const float* in, int64_t elements, uint8_t* row) {
  CHECK_EQ(elements % GetTensorType(type).block_elements, 0);
  switch (type) {
    case TensorType::kF32:
      if (elements > 0) std::memcpy(row, in, static_cast<size_t>(elements) * sizeof(float));
      return;
    case TensorType::kF16:
      for (int64_t i = 0; i < elements; ++i) StoreU16(FloatToHalf(in[i]), row + 2 * i);
      return;
    case TensorType::kBF16:
      for (int64_t i = 0; i < elements; ++i) StoreU16(FloatToBf16(in[i]), row + 2 * i);
      return;
    case TensorType::kQ8_0:
      for (int64_t i = 0; i < elements; i += kQ8Elements, row += kQ8Bytes) QuantizeQ8Block(in + i, row);
      return;
    default: CHECK(false);
  }
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {  // infinity, or NaN with its payload; made quiet, as the hardware's conversion does
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal, a multiple of 2^-24
    // Adding 0.5 puts the unit in the last place of the sum at 2^-24, so the addition itself rounds to nearest even.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xfffu + odd;  // a carry out of the fraction raises the exponent, as it should
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN stays NaN, quiet
  const uint32_t odd = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
}

}  // namespace stagecoach
