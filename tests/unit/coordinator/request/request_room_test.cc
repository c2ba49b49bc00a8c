#include "coordinator/request/request_room.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr RoomLimits kLimits = {.context = 100, .blocks = 5, .block_tokens = 16};  // 80 tokens of KV

TEST(RequestRoom, ARequestNeedsKvForAllTokensButTheLastNewOne) {
  EXPECT_TRUE(CheckRoom(60, 21, kLimits).ok());
  const absl::Status status = CheckRoom(60, 22, kLimits);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("60 prompt tokens and up to 22 new ones need KV for 81 tokens, the pool holds 80 (5 blocks of 16)"));
}

TEST(RequestRoom, NewTokensBeyondTheContextAreNotCounted) {
  const RoomLimits large = {.context = 100, .blocks = 10, .block_tokens = 16};
  EXPECT_TRUE(CheckRoom(99, 1000000, large).ok());
  EXPECT_FALSE(CheckRoom(100, 1, large).ok());
  EXPECT_TRUE(CheckRoom(100, 0, large).ok()) << "only scored";
  EXPECT_FALSE(CheckRoom(101, 0, large).ok());
}

}  // namespace
}  // namespace stagecoach
