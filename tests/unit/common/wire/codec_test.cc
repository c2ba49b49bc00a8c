#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "common/wire/frame.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

uint32_t BitwiseCrc32c(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c({reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0)), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(300);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t end = begin; end < bytes.size(); end += 1 + begin) {
      const std::vector<uint8_t> part(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(end));
      ASSERT_EQ(Crc32c(absl::MakeSpan(bytes).subspan(begin, end - begin)), BitwiseCrc32c(part));
    }
  }
}

float ThroughBf16(float value) {
  uint8_t bytes[2];
  EncodeHidden(WireType::kBF16, &value, 1, bytes);
  float back;
  DecodeHidden(WireType::kBF16, bytes, 1, &back);
  return back;
}

TEST(HiddenCodec, F32IsExact) {
  const std::vector<float> values = {0.f, -0.f, 1e-45f, 3.14f, -std::numeric_limits<float>::infinity()};
  std::vector<uint8_t> bytes(values.size() * 4);
  std::vector<float> back(values.size());
  EncodeHidden(WireType::kF32, values.data(), values.size(), bytes.data());
  DecodeHidden(WireType::kF32, bytes.data(), values.size(), back.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i]));
  }
}

TEST(HiddenCodec, Bf16RoundsToTheNearestAndTiesToEven) {
  const auto bits = [](uint32_t word) { return std::bit_cast<float>(word); };
  EXPECT_EQ(ThroughBf16(bits(0x3f800000)), bits(0x3f800000));
  EXPECT_EQ(ThroughBf16(bits(0x3f808000)), bits(0x3f800000));  // a tie, down to even
  EXPECT_EQ(ThroughBf16(bits(0x3f818000)), bits(0x3f820000));  // a tie, up to even
  EXPECT_EQ(ThroughBf16(bits(0x3f808001)), bits(0x3f810000));
  EXPECT_EQ(ThroughBf16(bits(0xbf807fff)), bits(0xbf800000));
  EXPECT_EQ(ThroughBf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ThroughBf16(bits(0x7f800001))));  // a NaN whose mantissa rounding would lose
  EXPECT_TRUE(std::isnan(ThroughBf16(bits(0xffffffff))));
  EXPECT_TRUE(std::signbit(ThroughBf16(-0.f)));
}

TEST(HiddenCodec, Bf16OfRandomNumbersIsWithinHalfAStep) {
  std::mt19937 random(2);
  std::vector<float> values(1001);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  std::vector<uint8_t> bytes(values.size() * 2);
  std::vector<float> back(values.size());
  EncodeHidden(WireType::kBF16, values.data(), values.size(), bytes.data());
  DecodeHidden(WireType::kBF16, bytes.data(), values.size(), back.data());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) / 256);
}

TEST(WireType, IsParsedFromItsName) {
  EXPECT_EQ(*ParseWireType("f32"), WireType::kF32);
  EXPECT_EQ(*ParseWireType("bf16"), WireType::kBF16);
  EXPECT_STREQ(WireTypeName(WireType::kBF16), "bf16");
  EXPECT_EQ(ParseWireType("f16").status().message(), "`wire_type` is 'f16', expected one of f32, bf16");
}

}  // namespace
}  // namespace stagecoach
