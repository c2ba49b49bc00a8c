#include "common/quant/finite_scan.h"

#include <cmath>
#include <limits>
#include <vector>

#include "common/quant/block_codes.h"
#include "common/quant/block_scales.h"
#include "common/quant/supported_types.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr int64_t kBlocks = 37;  // no multiple of what is looked at at once

std::vector<uint8_t> RandomBlocksOf(TensorType type) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<uint8_t> blocks(kBlocks * info.block_bytes);
  FillRandomRow(type, kBlocks * info.block_elements, 7, 0.02f, blocks.data());
  return blocks;
}

// Where the number lies that makes a block's values finite or not, and the same again for a minimum.
std::vector<size_t> PlacesOfNumbers(TensorType type) {
  const BlockScales* const scales = FindBlockScales(type);
  if (scales == nullptr) return {0};
  const auto at = static_cast<size_t>(scales->scale_at);
  return scales->has_min ? std::vector<size_t>{at, at + 2} : std::vector<size_t>{at};
}

void Store(TensorType type, float value, uint8_t* at) {
  if (type == TensorType::kMXFP4) {
    *at = 0xff;  // its only one
  } else if (FindBlockScales(type) != nullptr) {
    StoreHalf(value, at);
  } else {
    QuantizeRow(type, &value, 1, at);
  }
}

bool DecodesToFinite(TensorType type, const std::vector<uint8_t>& blocks) {
  std::vector<float> values(kBlocks * GetTensorType(type).block_elements);
  DequantizeRow(type, blocks.data(), static_cast<int64_t>(values.size()), values.data());
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(FiniteScan, FindsTheFirstNumberOfEveryTypeThatIsNotFiniteWhereverItStands) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const TensorType type : SupportedTypes()) {
    SCOPED_TRACE(GetTensorType(type).name);
    const std::vector<uint8_t> sound = RandomBlocksOf(type);
    ASSERT_EQ(FindNonFinite(type, sound.data(), kBlocks), std::nullopt);
    for (const size_t place : PlacesOfNumbers(type)) {
      for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (int64_t block = 0; block < kBlocks; ++block) {
          std::vector<uint8_t> damaged = sound;
          Store(type, value, &damaged[static_cast<size_t>(block) * GetTensorType(type).block_bytes + place]);
          ASSERT_EQ(FindNonFinite(type, damaged.data(), kBlocks), block);
          ASSERT_EQ(FindNonFinite(type, damaged.data(), block), std::nullopt);
          ASSERT_FALSE(DecodesToFinite(type, damaged)) << "what is refused";
        }
      }
    }
  }
}

TEST(FiniteScan, TakesEveryFiniteNumber) {
  const float extremes[] = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 0.0f, -0.0f,
                            std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(FindNonFinite(TensorType::kF32, reinterpret_cast<const uint8_t*>(extremes), 5), std::nullopt);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto* at = reinterpret_cast<const uint8_t*>(&half);
    ASSERT_EQ(FindNonFinite(TensorType::kF16, at, 1).has_value(), !std::isfinite(HalfToFloat(half))) << bits;
    ASSERT_EQ(FindNonFinite(TensorType::kBF16, at, 1).has_value(), !std::isfinite(Bf16ToFloat(half))) << bits;
  }
}

}  // namespace
}  // namespace stagecoach
