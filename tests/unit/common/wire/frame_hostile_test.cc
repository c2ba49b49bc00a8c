// Frames that are damaged, cut or invented: refused, or without effect on the header; never a crash.

#include <random>

#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"
#include "gtest/gtest.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {
namespace {

// How many of the decoders take the bytes.
int Decoded(const FrameLimits& limits, const std::vector<uint8_t>& bytes) {
  int decoded = 0;
  decoded += DecodeStep(limits, bytes, 7, true).ok();
  decoded += DecodeStep(limits, bytes, 7, false).ok();
  decoded += DecodeResult(limits, bytes, 7).ok();
  decoded += DecodeControl(limits.job, bytes).ok();
  return decoded;
}

TEST(HostileFrame, WithOneByteChangedIsRefusedUnlessItIsThePayload) {
  const FrameLimits limits = SmallLimits();
  const std::vector<uint8_t> good = EncodedStep(limits, SampleBatch(), true);
  const auto expected = DecodeStep(limits, good, 7, true);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const size_t payload_at = good.size() - expected->hidden.size();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff, 0x10}) {
      std::vector<uint8_t> bytes = good;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ change);
      const auto decoded = DecodeStep(limits, bytes, 7, true);
      EXPECT_EQ(decoded.ok(), i >= payload_at) << "byte " << i << " changed by " << change;
      if (!decoded.ok()) continue;
      EXPECT_EQ(decoded->batch, expected->batch);
    }
  }
}

TEST(HostileFrame, WithoutAPayloadAndOneByteChangedIsRefused) {
  const FrameLimits limits = SmallLimits();
  const std::vector<uint8_t> good = EncodedStep(limits, SampleBatch(), false);
  ASSERT_EQ(Decoded(limits, good), 1);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> bytes = good;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ (1 << bit));
      EXPECT_EQ(Decoded(limits, bytes), 0) << "bit " << bit << " of byte " << i;
    }
  }
}

TEST(HostileFrame, CutAnywhereIsRefused) {
  const FrameLimits limits = SmallLimits();
  for (const bool has_hidden : {false, true}) {
    const std::vector<uint8_t> good = EncodedStep(limits, SampleBatch(), has_hidden);
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_EQ(Decoded(limits, {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}), 0)
          << "cut to " << length;
    }
  }
}

TEST(HostileFrame, WithMoreBytesBehindItIsRefused) {
  const FrameLimits limits = SmallLimits();
  for (const bool has_hidden : {false, true}) {
    std::vector<uint8_t> bytes = EncodedStep(limits, SampleBatch(), has_hidden);
    bytes.push_back(0);
    EXPECT_EQ(Decoded(limits, bytes), 0);
  }
}

void PutVarint(uint64_t value, std::vector<uint8_t>* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<uint8_t>(value | 0x80));
  out->push_back(static_cast<uint8_t>(value));
}

TEST(HostileFrame, WithHostileLengthsIsRefused) {
  const FrameLimits limits = SmallLimits();
  for (const uint64_t length : {uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{0x7fffffff}, uint64_t{0x80000000},
                                uint64_t{0xffffffff}, ~uint64_t{0} >> 1, ~uint64_t{0}}) {
    std::vector<uint8_t> header_length = {0x0d, 0, 0, 0, 0, 0x12};
    PutVarint(length, &header_length);
    EXPECT_EQ(Decoded(limits, header_length), 0);
    std::vector<uint8_t> padding_length = {0x0d, 0, 0, 0, 0, 0x12, 0, 0x72};
    PutVarint(length, &padding_length);
    EXPECT_EQ(Decoded(limits, padding_length), 0);
    std::vector<uint8_t> payload_length = {0x0d, 0, 0, 0, 0, 0x12, 0, 0x72, 0, 0x7a};
    PutVarint(length, &payload_length);
    EXPECT_EQ(Decoded(limits, payload_length), 0);
  }
}

TEST(HostileFrame, WithALengthOfMoreThan64BitsOrOfALongerFormIsRefused) {
  const auto split = [](std::vector<uint8_t> length) {
    std::vector<uint8_t> bytes = {0x0d, 0, 0, 0, 0, 0x12};
    bytes.insert(bytes.end(), length.begin(), length.end());
    return internal::SplitFrame(bytes, 1000).status();
  };
  EXPECT_TRUE(split({0x00}).ok());  // the checksum of nothing is 0
  EXPECT_FALSE(split({0x80, 0x00}).ok());
  EXPECT_FALSE(split({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}).ok());
  EXPECT_FALSE(split({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}).ok());
  EXPECT_FALSE(split({0x80}).ok());
}

TEST(HostileFrame, WithPaddingThatIsTooLongOrThatMisplacesThePayloadIsRefused) {
  const auto split = [](size_t padding) {
    std::vector<uint8_t> bytes = {0x0d, 0, 0, 0, 0, 0x12, 0, 0x72};
    PutVarint(padding, &bytes);
    bytes.insert(bytes.end(), padding, 0);
    bytes.insert(bytes.end(), {0x7a, 0x01, 0x55});
    return internal::SplitFrame(bytes, 1000).status();
  };
  EXPECT_TRUE(split(64 - 11).ok());
  EXPECT_FALSE(split(64 - 10).ok());
  EXPECT_FALSE(split(0).ok());
  EXPECT_FALSE(split(128 - 11).ok());
}

TEST(HostileFrame, WithAHeaderThatIsNotOneIsRefused) {
  const FrameLimits limits = SmallLimits();
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> header(random() % 200);
    for (uint8_t& byte : header) byte = static_cast<uint8_t>(random());
    const uint32_t crc = Crc32c(header);
    std::vector<uint8_t> bytes = {0x0d,
                                  static_cast<uint8_t>(crc),
                                  static_cast<uint8_t>(crc >> 8),
                                  static_cast<uint8_t>(crc >> 16),
                                  static_cast<uint8_t>(crc >> 24),
                                  0x12};
    PutVarint(header.size(), &bytes);
    bytes.insert(bytes.end(), header.begin(), header.end());
    EXPECT_EQ(Decoded(limits, bytes), 0);
  }
}

TEST(HostileFrame, WithADamagedHeaderAndAMatchingChecksumNeverBreaksTheDecoder) {
  const FrameLimits limits = SmallLimits();
  const std::vector<uint8_t> good = EncodedStep(limits, SampleBatch(), true);
  const size_t header_at = 8;  // tag and checksum, tag and a length of two bytes
  const auto parts = internal::SplitFrame(good, good.size());
  ASSERT_TRUE(parts.ok());
  ASSERT_EQ(parts->header.data(), good.data() + header_at);
  std::mt19937_64 random(6);
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      bytes[header_at + random() % parts->header.size()] = static_cast<uint8_t>(random());
    }
    const uint32_t crc = Crc32c({bytes.data() + header_at, parts->header.size()});
    for (int byte = 0; byte < 4; ++byte) bytes[1 + byte] = static_cast<uint8_t>(crc >> (8 * byte));
    const auto decoded = DecodeStep(limits, bytes, 7, true);
    if (!decoded.ok()) continue;
    ++accepted;  // another value that is as valid; the payload still has the place and size the limits give it
    EXPECT_EQ(decoded->hidden.size(), static_cast<size_t>(decoded->batch.rows() * limits.hidden) * sizeof(float));
  }
  EXPECT_GT(accepted, 0);
}

TEST(HostileFrame, OfRandomBytesIsRefused) {
  const FrameLimits limits = SmallLimits();
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint8_t> bytes(random() % 100);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (!bytes.empty() && i % 2 == 0) bytes[0] = 0x0d;
    if (bytes.size() > 5 && i % 2 == 0) bytes[5] = 0x12;
    EXPECT_EQ(Decoded(limits, bytes), 0);
  }
}

}  // namespace
}  // namespace stagecoach
