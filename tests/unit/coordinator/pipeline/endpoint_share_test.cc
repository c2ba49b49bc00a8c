#include "coordinator/pipeline/endpoint_share.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/transport/loopback.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::shared_ptr<FrameBuffer> OneByte(uint8_t value) {
  auto buffer = std::make_shared<FrameBuffer>(16, 0);
  *buffer->SetMessage(1, 0) = value;
  return buffer;
}

std::string NextOf(Endpoint* part) {
  const auto frame = part->Poll();
  EXPECT_TRUE(frame.ok()) << frame.status();
  if (!frame.ok() || !frame->has_value()) return "";
  return absl::StrCat((*frame)->source(), ":", (*frame)->bytes()[0]);
}

TEST(EndpointShare, GivesEachPartTheFramesOfItsRanksInTheirOrder) {
  LoopbackWorld world(4);
  const std::unique_ptr<Endpoint> own = world.Connect(0);
  EndpointShare share(own.get());
  Endpoint *const first = share.AddPart(), *const second = share.AddPart();
  ASSERT_TRUE(first->OpenReceive(Channel::kTelemetry, 1, 16, 4).ok());
  ASSERT_TRUE(first->OpenReceive(Channel::kResult, 2, 16, 4).ok());
  ASSERT_TRUE(second->OpenReceive(Channel::kResult, 3, 16, 4).ok());
  for (const int rank : {1, 2, 3}) {
    const std::unique_ptr<Endpoint> other = world.Connect(rank);
    for (uint8_t value = 0; value < 2; ++value) {
      const Channel channel = rank == 1 ? Channel::kTelemetry : Channel::kResult;
      ASSERT_TRUE(other->Send(channel, 0, OneByte(value)).ok());
    }
  }
  EXPECT_EQ(NextOf(second), "3:0");
  EXPECT_EQ(NextOf(second), "3:1");
  EXPECT_EQ(NextOf(second), "");
  std::string got[3];
  for (int i = 0; i < 4; ++i) {
    const std::string next = NextOf(first);
    ASSERT_EQ(next.size(), 3u);
    got[next[0] - '0'] += next[2];
  }
  EXPECT_EQ(got[1], "01");
  EXPECT_EQ(got[2], "01");
  EXPECT_EQ(NextOf(first), "");
}

TEST(EndpointShare, RefusesARankThatAnotherPartReceivesFrom) {
  LoopbackWorld world(3);
  const std::unique_ptr<Endpoint> own = world.Connect(0);
  EndpointShare share(own.get());
  Endpoint *const first = share.AddPart(), *const second = share.AddPart();
  ASSERT_TRUE(first->OpenReceive(Channel::kTelemetry, 1, 16, 1).ok());
  EXPECT_THAT(second->OpenReceive(Channel::kResult, 1, 16, 1),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("receive from rank 1, expected a rank that no other part receives from")));
  EXPECT_FALSE(second->OpenReceive(Channel::kResult, kAnyRank, 16, 1).ok());
  EXPECT_TRUE(second->OpenReceive(Channel::kResult, 2, 16, 1).ok());
}

}  // namespace
}  // namespace stagecoach
