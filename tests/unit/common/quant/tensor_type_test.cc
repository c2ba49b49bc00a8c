#include "common/quant/tensor_type.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/base/counter_rng.h"
#include "common/quant/supported_types.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, EveryBitPatternSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    const uint32_t expected = is_nan ? bits | 0x200 : bits;  // NaN becomes quiet and keeps sign and payload
    ASSERT_EQ(FloatToHalf(HalfToFloat(static_cast<uint16_t>(bits))), expected);
  }
}

TEST(Half, RoundsToNearestEvenBetweenEveryTwoNeighbours) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits));
    const float high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact: floats have 13 more bits
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, kInfinity)), bits + 1) << bits;
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000) << bits;
  }
}

TEST(Half, OverflowsToInfinityAt65520) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(kInfinity), 0x7c00);
}

TEST(Half, UnderflowsToSignedZero) {
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);  // half of the smallest, to even
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(FloatToHalf(-1e-30f), 0x8000);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Bf16, EveryBitPatternSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(FloatToBf16(value), is_nan ? bits | 0x40 : bits);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>((bits << 16) | 0x8000)), even) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>((bits << 16) | 0x7fff)), bits) << bits;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>((bits << 16) | 0x8001)), bits + 1) << bits;
  }
}

TEST(Bf16, ANanWhoseHighPayloadIsZeroStaysANan) {
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(TensorType, KnowsEveryIdOnceAndNoRemovedOne) {
  std::set<std::string> names;
  int known = 0;
  for (uint32_t id = 0; id < 256; ++id) {
    const TensorTypeInfo* info = FindTensorType(id);
    if (info == nullptr) continue;
    ++known;
    EXPECT_EQ(info->id, id);
    EXPECT_TRUE(names.insert(info->name).second) << info->name;
    EXPECT_GT(info->block_elements, 0u);
    EXPECT_GT(info->block_bytes, 0u);
  }
  EXPECT_EQ(known, 37);
  for (uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 0xffffffffu})
    EXPECT_EQ(FindTensorType(removed), nullptr);
}

TEST(TensorType, BlocksHaveTheSizesOfTheSpecification) {
  EXPECT_STREQ(FindTensorType(12)->name, "Q4_K");
  EXPECT_EQ(FindTensorType(12)->block_bytes, 144u);
  EXPECT_EQ(FindTensorType(41)->block_elements, 128u);
  EXPECT_FALSE(FindTensorType(16)->supported);
}

TEST(TensorType, MessagesListEverySupportedTypeFloatsFirst) {
  EXPECT_EQ(SupportedTensorTypes(),
            "F32, F16, BF16, Q8_0, Q6_K, Q5_0, Q5_1, Q5_K, Q4_0, Q4_1, Q4_K, IQ4_NL, IQ4_XS, MXFP4, Q3_K, Q2_K, Q2_0, "
            "PQ2_0, Q2_0_OXI, TQ2_0, TQ1_0, Q1_0");
  for (TensorType type : SupportedTypes()) EXPECT_TRUE(GetTensorType(type).supported);
}

TEST(TensorType, AnUnknownNameIsRefusedWithTheList) {
  for (const char* name : {"", "Q9_9", "IQ2_XXS", "Q8_0 "}) {
    const auto type = ParseTensorType(name);
    ASSERT_EQ(type.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(type.status().message(), ::testing::HasSubstr("F32, F16, BF16, Q8_0, Q6_K"));
  }
}

TEST(TensorType, RowBytesCountWholeBlocks) {
  EXPECT_EQ(RowBytes(TensorType::kF32, 3), 12u);
  EXPECT_EQ(RowBytes(TensorType::kF16, 3), 6u);
  EXPECT_EQ(RowBytes(TensorType::kBF16, 0), 0u);
  EXPECT_EQ(RowBytes(TensorType::kQ8_0, 256), 272u);
  EXPECT_DEATH(RowBytes(TensorType::kQ8_0, 33), "CHECK failed");
}

TEST(Q8, EncodesAKnownBlockAndRoundsHalvesAwayFromZero) {
  std::vector<float> in(32, 0);
  in[0] = 127;  // scale exactly 1
  in[1] = -0.5f;
  in[2] = 2.5f;
  in[3] = -2.49f;
  std::vector<uint8_t> block(34);
  QuantizeRow(TensorType::kQ8_0, in.data(), 32, block.data());
  EXPECT_EQ(block[0], 0x00);
  EXPECT_EQ(block[1], 0x3c);
  std::vector<int> values;
  for (int i = 2; i < 7; ++i) values.push_back(static_cast<int8_t>(block[i]));
  EXPECT_THAT(values, ElementsAre(127, -1, 3, -2, 0));
}

TEST(Q8, EncodesZeroAndVanishingBlocksAsZero) {
  for (float tiny : {0.0f, 1e-42f}) {
    std::vector<float> in(32, tiny), out(32, 1);
    std::vector<uint8_t> block(34);
    QuantizeRow(TensorType::kQ8_0, in.data(), 32, block.data());
    DequantizeRow(TensorType::kQ8_0, block.data(), 32, out.data());
    for (float value : out) ASSERT_EQ(value, 0.0f);
  }
}

TEST(Rows, EncodingAndDecodingStaysWithinTheTypesPrecision) {
  std::vector<float> in(256), out(256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(UniformAt(7, i) * 2 - 1);
  const std::pair<TensorType, float> cases[] = {{TensorType::kF32, 0.0f},
                                                {TensorType::kF16, 0x1p-12f},
                                                {TensorType::kBF16, 0x1p-9f},
                                                {TensorType::kQ8_0, 0.5f / 127 + 0.0005f}};
  for (const auto& [type, bound] : cases) {
    // One byte in front, so that rows are read and written where no alignment holds.
    std::vector<uint8_t> bytes(RowBytes(type, 256) + 1);
    QuantizeRow(type, in.data(), 256, bytes.data() + 1);
    DequantizeRow(type, bytes.data() + 1, 256, out.data());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_NEAR(out[i], in[i], bound) << GetTensorType(type).name;
  }
}

}  // namespace
}  // namespace stagecoach
