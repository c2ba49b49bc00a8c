#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "common/quant/block_codes.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// How random bytes become a valid block of a type.
struct RandomBlock {
  TensorType type;
  float rms;      // of the values of a block of scale 1, with the minimum below
  bool any_sign;  // the quantisers people use write negative scales too
  float min = 0;  // the minimum that centres the values of a block of scale 1
};

// Root mean squares follow from uniform codes: a code of b bits, q in [0, n), has mean (n-1)/2 and mean square
// (n-1)(2n-1)/6.
constexpr RandomBlock kRandomBlocks[] = {
    {TensorType::kQ8_0, 73.9f, false},         {TensorType::kQ4_0, 4.64f, true},
    {TensorType::kQ4_1, 4.61f, false, -7.5f},  {TensorType::kQ5_0, 9.25f, true},
    {TensorType::kQ5_1, 9.23f, false, -15.5f}, {TensorType::kIQ4_NL, 67.4f, true},
    {TensorType::kQ2_K, 13.9f, false, 1.5f},   {TensorType::kQ3_K, 43.3f, true},
    {TensorType::kQ4_K, 258.3f, false, 7.5f},  {TensorType::kQ5_K, 526.9f, false, 15.5f},
    {TensorType::kQ6_K, 1365.0f, true},        {TensorType::kIQ4_XS, 1246.0f, true},
    {TensorType::kTQ1_0, 0.816f, false},       {TensorType::kTQ2_0, 1.225f, false},
    {TensorType::kQ1_0, 1.0f, false},          {TensorType::kQ2_0, 1.225f, false},
    {TensorType::kPQ2_0, 1.225f, false},       {TensorType::kQ2_0_Oxi, 0.707f, false},
};

const RandomBlock& RandomBlockOf(TensorType type) {
  for (const RandomBlock& block : kRandomBlocks) {
    if (block.type == type) return block;
  }
  CHECK(false);
}

// Positions of the random numbers: block b draws at b * kDrawsPerBlock and after; the bytes come first.
constexpr uint64_t kDrawsPerBlock = 64;
constexpr uint64_t kScaleDraw = 60, kMinDraw = 61, kSignDraw = 62;

void FillRandomBytes(uint64_t seed, uint64_t position, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; i += 6, ++position) {
    const auto bits = static_cast<uint64_t>(UniformAt(seed, position) * 0x1p48);
    std::memcpy(out + i, &bits, std::min<size_t>(6, count - i));
  }
}

// The E8M0 exponent whose values have about this root mean square: the largest power of two not above the wanted scale,
// or its double.
uint8_t Mxfp4Exponent(float magnitude, double uniform) {
  constexpr float kRms = 5.85f;  // of the doubled values
  int exponent = 0;
  std::frexp(magnitude / kRms, &exponent);  // scale = 2^(exponent - 1) to 2^exponent
  return static_cast<uint8_t>(std::clamp(exponent + 128 - (uniform < 0.5 ? 1 : 0), 0, 250));
}

void FillRandomBlocks(TensorType type, uint64_t blocks, uint64_t seed, float magnitude, uint8_t* row) {
  const size_t bytes = GetTensorType(type).block_bytes;
  const BlockScales* const scales = FindBlockScales(type);
  for (uint64_t b = 0; b < blocks; ++b, row += bytes) {
    const uint64_t at = b * kDrawsPerBlock;
    FillRandomBytes(seed, at, bytes, row);
    if (type == TensorType::kMXFP4) {
      row[0] = Mxfp4Exponent(magnitude, UniformAt(seed, at + kScaleDraw));
      continue;
    }
    const RandomBlock& block = RandomBlockOf(type);
    const auto factor = static_cast<float>(0.5 + UniformAt(seed, at + kScaleDraw));
    const float sign = block.any_sign && UniformAt(seed, at + kSignDraw) < 0.5 ? -1.0f : 1.0f;
    const float scale = magnitude / block.rms * factor;
    uint8_t* const at_scale = row + scales->scale_at;
    StoreHalf(sign * scale, at_scale);
    if (!scales->has_min) continue;
    const auto min_factor = static_cast<float>(0.75 + 0.5 * UniformAt(seed, at + kMinDraw));
    StoreHalf(scale * block.min * min_factor, at_scale + sizeof(uint16_t));
  }
}

}  // namespace

void FillRandomRow(TensorType type, int64_t elements, uint64_t seed, float magnitude, uint8_t* row) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK_EQ(elements % info.block_elements, 0);
  if (info.block_elements > 1) {
    FillRandomBlocks(type, static_cast<uint64_t>(elements) / info.block_elements, seed, magnitude, row);
    return;
  }
  constexpr float kUniformRms = 0.57735f;  // of a uniform number in [-1, 1)
  for (int64_t i = 0; i < elements; ++i, row += info.block_bytes) {
    const auto uniform = static_cast<float>(2 * UniformAt(seed, static_cast<uint64_t>(i)) - 1);
    const float value = magnitude / kUniformRms * uniform;
    QuantizeRow(type, &value, 1, row);
  }
}

}  // namespace stagecoach
