#include <cstring>
#include <string>
#include <variant>

#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"
#include "common/wire/weight_frame.h"
#include "tests/testing/matchers.h"
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
  const auto expected = DecodeStep(limits, good, 7, true).value();
  const size_t payload_at = good.size() - expected.hidden.size();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff, 0x10}) {
      std::vector<uint8_t> bytes = good;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ change);
      const auto decoded = DecodeStep(limits, bytes, 7, true);
      EXPECT_EQ(decoded.ok(), i >= payload_at) << "byte " << i << " changed by " << change;
      if (!decoded.ok()) continue;
      EXPECT_EQ(decoded->batch, expected.batch);
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

// The tags and the checksum with which a frame begins, and what follows.
std::vector<uint8_t> FrameBytes(const std::vector<uint8_t>& rest, uint32_t crc = 0) {
  std::vector<uint8_t> bytes = {0x0d};
  for (int byte = 0; byte < 4; ++byte) bytes.push_back(static_cast<uint8_t>(crc >> (8 * byte)));
  bytes.push_back(0x12);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

TEST(HostileFrame, WithHostileLengthsIsRefused) {
  const FrameLimits limits = SmallLimits();
  for (const uint64_t length : {uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{0x7fffffff}, uint64_t{0x80000000},
                                uint64_t{0xffffffff}, ~uint64_t{0} >> 1, ~uint64_t{0}}) {
    for (const std::vector<uint8_t>& before :
         std::vector<std::vector<uint8_t>>{{}, {0, 0x72}, {0, 0x72, 0, 0x7a}}) {  // of header, padding, payload
      std::vector<uint8_t> bytes = FrameBytes(before);
      PutVarint(length, &bytes);
      EXPECT_EQ(Decoded(limits, bytes), 0);
    }
  }
}

TEST(HostileFrame, WithALengthOfMoreThan64BitsOrOfALongerFormIsRefused) {
  const auto split = [](const std::vector<uint8_t>& length) {
    return internal::SplitFrame(FrameBytes(length), 1000).status();
  };
  EXPECT_TRUE(split({0x00}).ok());  // the checksum of nothing is 0
  EXPECT_FALSE(split({0x80, 0x00}).ok());
  EXPECT_FALSE(split({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}).ok());
  EXPECT_FALSE(split({0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}).ok());
  EXPECT_FALSE(split({0x80}).ok());
}

TEST(HostileFrame, WithPaddingThatIsTooLongOrThatMisplacesThePayloadIsRefused) {
  const auto split = [](size_t padding) {
    std::vector<uint8_t> bytes = FrameBytes({0, 0x72});
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
    std::vector<uint8_t> bytes = FrameBytes({}, Crc32c(header));
    PutVarint(header.size(), &bytes);
    bytes.insert(bytes.end(), header.begin(), header.end());
    EXPECT_EQ(Decoded(limits, bytes), 0);
  }
}

void DamageHeaders(const FrameLimits& limits, const MicroBatch& batch) {
  const std::vector<uint8_t> good = EncodedStep(limits, batch, true);
  const auto parts = internal::SplitFrame(good, good.size()).value();
  const auto header_at = static_cast<size_t>(parts.header.data() - good.data());
  std::mt19937_64 random(6);
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      bytes[header_at + random() % parts.header.size()] = static_cast<uint8_t>(random());
    }
    const uint32_t crc = Crc32c({bytes.data() + header_at, parts.header.size()});
    for (int byte = 0; byte < 4; ++byte) bytes[1 + byte] = static_cast<uint8_t>(crc >> (8 * byte));
    const auto decoded = DecodeStep(limits, bytes, 7, true);
    if (!decoded.ok()) continue;
    ++accepted;  // another value that is as valid; the payload still has the place and size the limits give it
    EXPECT_EQ(decoded->hidden.size(), static_cast<size_t>(decoded->batch.rows() * limits.hidden) * sizeof(float));
    for (const SequenceSlice& slice : decoded->batch.slices) EXPECT_EQ(slice.tokens.size(), slice.guess ? 1u : 0u);
  }
  EXPECT_GT(accepted, 0);
}

TEST(HostileFrame, WithADamagedHeaderAndAMatchingChecksumNeverBreaksTheDecoder) {
  DamageHeaders(SmallLimits(), SampleBatch());
  DamageHeaders(GuessingLimits(), GuessingBatch());
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

constexpr JobEpoch kJob = {.run_id = 0x123456789, .epoch = 3};

std::string RequestError(const WeightRange& range) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
  EXPECT_TRUE(EncodeWeightRequest(kJob, 5, range, &buffer).ok());
  const auto decoded = DecodeWeightRequest(kJob, buffer.message(), 5);
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

TEST(WeightFrame, ARequestComesBackAsItWas) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
  for (const WeightRange& range :
       std::vector<WeightRange>{{0, 0, 1}, {1023, uint64_t{1} << 50, kMaxWeightChunkBytes}, {0, UINT64_MAX - 10, 10}}) {
    ASSERT_TRUE(EncodeWeightRequest(kJob, 5, range, &buffer).ok());
    EXPECT_TRUE(DecodeWeightRequest(kJob, buffer.message(), 5).value() == range);
    EXPECT_FALSE(DecodeWeightRequest(kJob, buffer.message(), 6).ok());
    EXPECT_FALSE(DecodeWeightRequest({.run_id = 1, .epoch = 3}, buffer.message(), 5).ok());
  }
}

TEST(WeightFrame, ARequestWhoseSizeOrEndCannotBeIsRefused) {
  EXPECT_THAT(RequestError({0, 0, 0}), HasSubstr("'weight_request.bytes' is 0, expected 1 to 1048576"));
  EXPECT_THAT(RequestError({0, 0, kMaxWeightChunkBytes + 1}), HasSubstr("is 1048577, expected 1 to 1048576"));
  EXPECT_THAT(RequestError({0, 0, UINT64_MAX}), HasSubstr("expected 1 to 1048576"));
  EXPECT_THAT(RequestError({0, UINT64_MAX - 9, 10}), HasSubstr("'weight_request.offset' is 18446744073709551606"));
  EXPECT_THAT(RequestError({-1, 0, 10}), HasSubstr("'weight_request.shard' is -1"));
}

TEST(WeightFrame, AnotherBodyIsNoRequest) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
  ASSERT_TRUE(EncodeControl(kJob, pb::Heartbeat(), &buffer).ok());
  EXPECT_THAT(DecodeWeightRequest(kJob, buffer.message(), 0).status().message(), HasSubstr("weight_request"));
  EXPECT_THAT(DecodeWeightAnswer(kJob, buffer.message(), 0, {0, 0, 1}).status().message(), HasSubstr("weight_chunk"));
}

TEST(WeightFrame, TheLargestChunkFitsAReceive) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, kMaxWeightChunkBytes);
  std::memset(buffer.payload(), 7, kMaxWeightChunkBytes);
  const WeightRange range = {INT32_MAX, uint64_t{1} << 62, kMaxWeightChunkBytes};
  const uint32_t crc = Crc32c({buffer.payload(), kMaxWeightChunkBytes});
  ASSERT_TRUE(EncodeWeightChunk(kJob, UINT64_MAX, range, crc, &buffer).ok());
  EXPECT_LE(buffer.message().size(), kMaxWeightFrameBytes);
  const auto answer = DecodeWeightAnswer(kJob, buffer.message(), UINT64_MAX, range).value();
  EXPECT_EQ(std::get<WeightChunk>(answer).payload.size(), kMaxWeightChunkBytes);
  EXPECT_EQ(std::get<WeightChunk>(answer).crc32c, crc);
}

TEST(WeightFrame, ARefusalCarriesItsReasonHoweverLong) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
  ASSERT_TRUE(EncodeWeightRefusal(kJob, 9, absl::DataLossError(std::string(100000, 'x')), &buffer).ok());
  EXPECT_LE(buffer.message().size(), kMaxWeightFrameBytes);
  const auto answer = DecodeWeightAnswer(kJob, buffer.message(), 9, {0, 0, 1}).value();
  const absl::Status& refusal = std::get<absl::Status>(answer);
  EXPECT_THAT(refusal, testing::StatusIs(absl::StatusCode::kDataLoss, HasSubstr("xxx")));
}

TEST(StreamedRanges, TheChecksumTellsWhatWasSentFromWhereInWhateverOrder) {
  StreamedRanges a, b;
  a.Add({0, 0, 10}, 1);
  a.Add({0, 10, 10}, 2);
  a.Add({1, 0, 5}, 3);
  b.Add({1, 0, 5}, 3);
  b.Add({0, 10, 10}, 9);
  b.Add({0, 0, 10}, 1);
  EXPECT_EQ(a.bytes(), 25u);
  EXPECT_NE(a.Checksum(), b.Checksum());
  b.Add({0, 10, 10}, 2);  // asked for twice
  EXPECT_EQ(b.bytes(), 25u);
  EXPECT_EQ(a.Checksum(), b.Checksum());
}

}  // namespace
}  // namespace stagecoach
