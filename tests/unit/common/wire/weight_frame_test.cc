#include "common/wire/weight_frame.h"

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

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
    const auto decoded = DecodeWeightRequest(kJob, buffer.message(), 5);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(*decoded == range);
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
  const auto answer = DecodeWeightAnswer(kJob, buffer.message(), UINT64_MAX, range);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::get<WeightChunk>(*answer).payload.size(), kMaxWeightChunkBytes);
  EXPECT_EQ(std::get<WeightChunk>(*answer).crc32c, crc);
}

TEST(WeightFrame, ARefusalCarriesItsReasonHoweverLong) {
  FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
  ASSERT_TRUE(EncodeWeightRefusal(kJob, 9, absl::DataLossError(std::string(100000, 'x')), &buffer).ok());
  EXPECT_LE(buffer.message().size(), kMaxWeightFrameBytes);
  const auto answer = DecodeWeightAnswer(kJob, buffer.message(), 9, {0, 0, 1});
  ASSERT_TRUE(answer.ok()) << answer.status();
  const absl::Status& refusal = std::get<absl::Status>(*answer);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refusal.message(), HasSubstr("xxx"));
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
