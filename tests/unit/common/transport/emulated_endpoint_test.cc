#include "common/transport/emulated_endpoint.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/transport/loopback.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::shared_ptr<FrameBuffer> FrameOf(size_t bytes, uint8_t tag) {
  auto buffer = std::make_shared<FrameBuffer>(64, bytes);
  std::fill(buffer->payload(), buffer->payload() + bytes, tag);
  buffer->SetMessage(0, bytes);
  return buffer;
}

// Rank 0 sends over an emulated link, ranks 1 and 2 receive; the clock stands still until it is moved.
class EmulatedEndpointTest : public ::testing::Test {
 protected:
  EmulatedEndpointTest() {
    for (int rank : {1, 2}) {
      for (Channel channel : {Channel::kStep, Channel::kResult, Channel::kTelemetry}) {
        EXPECT_TRUE(receivers_[rank - 1]->OpenReceive(channel, 0, 10000, 8).ok());
      }
    }
  }

  void Start(double latency_s, double bytes_per_s) {
    const EmulatedLink link = {.latency_s = latency_s, .bytes_per_s = bytes_per_s};
    emulated_ = std::make_unique<EmulatedEndpoint>(sender_.get(), link, [this] { return now_us_; });
  }
  void Send(int destination, size_t bytes, uint8_t tag, Channel channel = Channel::kStep) {
    EXPECT_TRUE(emulated_->Send(channel, destination, FrameOf(bytes, tag)).ok());
  }
  // What arrives at the rank when the clock stands at each microsecond up to `until_us`: when, and its tag.
  std::vector<std::pair<int64_t, int>> ArriveUntil(int64_t until_us, int rank = 1) {
    std::vector<std::pair<int64_t, int>> arrived;
    for (; now_us_ <= until_us; ++now_us_) {
      EXPECT_TRUE(emulated_->Poll().ok());
      while (true) {
        const auto frame = receivers_[rank - 1]->Poll();
        EXPECT_TRUE(frame.ok());
        if (!frame.ok() || !frame->has_value()) break;
        arrived.emplace_back(now_us_, (*frame)->bytes()[0]);
      }
    }
    return arrived;
  }

  LoopbackWorld world_ = LoopbackWorld(3);
  std::unique_ptr<Endpoint> sender_ = world_.Connect(0);
  std::unique_ptr<Endpoint> receivers_[2] = {world_.Connect(1), world_.Connect(2)};
  int64_t now_us_ = 1000;
  std::unique_ptr<EmulatedEndpoint> emulated_;
};

TEST_F(EmulatedEndpointTest, HandsAFrameOnAfterExactlyTheLatency) {
  Start(0.000250, 0);
  Send(1, 100, 7);
  EXPECT_TRUE(emulated_->SendsPending());
  EXPECT_THAT(ArriveUntil(2000), ElementsAre(Pair(1250, 7)));
  EXPECT_FALSE(emulated_->SendsPending());
}

TEST_F(EmulatedEndpointTest, LetsFramesLeaveOneBehindTheOther) {
  Start(0.000100, 1e6);  // a byte a microsecond
  Send(1, 200, 1);
  Send(1, 300, 2);
  Send(1, 50, 3, Channel::kResult);  // the same link
  EXPECT_THAT(ArriveUntil(3000), ElementsAre(Pair(1300, 1), Pair(1600, 2), Pair(1650, 3)));
}

TEST_F(EmulatedEndpointTest, LeavesALinkFreeOnceItsFramesAreGone) {
  Start(0.000100, 1e6);
  Send(1, 200, 1);
  EXPECT_THAT(ArriveUntil(1250), ElementsAre());
  Send(1, 100, 2);  // at 1251: the first has left, and is still on its way
  EXPECT_THAT(ArriveUntil(3000), ElementsAre(Pair(1300, 1), Pair(1451, 2)));
}

TEST_F(EmulatedEndpointTest, KeepsTheLinksToTwoRanksApart) {
  Start(0.000010, 1e6);
  Send(1, 1000, 1);
  Send(2, 100, 2);
  EXPECT_THAT(ArriveUntil(1500, 2), ElementsAre(Pair(1110, 2)));
  EXPECT_THAT(ArriveUntil(2100, 1), ElementsAre(Pair(2010, 1)));
}

TEST_F(EmulatedEndpointTest, DoesNotDelayHeartbeats) {
  Start(0.5, 1000);
  Send(1, 1000, 1);
  Send(1, 100, 2, Channel::kTelemetry);
  EXPECT_THAT(ArriveUntil(1100), ElementsAre(Pair(1000, 2)));
  EXPECT_TRUE(emulated_->SendsPending());
}

TEST_F(EmulatedEndpointTest, CountsHoldingAFrameAsSendingIt) {
  Start(0.000250, 0);
  Send(1, 100, 7);
  ArriveUntil(1300);
  EXPECT_TRUE(emulated_->Poll().ok());
  const EndpointCounters counters = emulated_->counters();
  EXPECT_EQ(counters.frames_sent, 1u);
  EXPECT_GE(counters.send_us, 250u);
  EXPECT_GE(counters.last_send_us, 250u);
}

// A stage tells of its last send with its next frame, which is refused where that send was not over when it began.
TEST_F(EmulatedEndpointTest, LetsTheSendBeginWhenTheHoldingBegins) {
  emulated_ = std::make_unique<EmulatedEndpoint>(sender_.get(), EmulatedLink{.latency_s = 0.002});
  EXPECT_EQ(emulated_->counters().last_send_start_us, 0);
  for (int frame = 0; frame < 3; ++frame) {
    const int64_t begin_us = MonotonicUs();
    Send(1, 100, 7);
    while (emulated_->counters().frames_sent == static_cast<uint64_t>(frame)) {
      EXPECT_TRUE(emulated_->Poll().ok());
      EXPECT_TRUE(receivers_[0]->Poll().ok());
    }
    const EndpointCounters counters = emulated_->counters();
    EXPECT_GE(counters.last_send_us, 2000u);
    EXPECT_GE(counters.last_send_start_us, begin_us);
    EXPECT_LE(counters.last_send_start_us + static_cast<int64_t>(counters.last_send_us), MonotonicUs());
  }
}

TEST_F(EmulatedEndpointTest, SaysThatARankIsNone) {
  Start(0.001, 0);
  EXPECT_EQ(emulated_->Send(Channel::kStep, 9, FrameOf(1, 1)).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach
