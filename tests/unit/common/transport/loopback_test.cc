#include "common/transport/loopback.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/emulated_endpoint.h"
#include "common/transport/wait_ladder.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int64_t kDeadlineUs = 20'000'000;

std::shared_ptr<FrameBuffer> MakeFrame(std::vector<uint8_t> bytes) {
  auto buffer = std::make_shared<FrameBuffer>(64, bytes.size());
  std::copy(bytes.begin(), bytes.end(), buffer->payload());
  buffer->SetMessage(0, bytes.size());
  return buffer;
}

std::vector<uint8_t> Bytes(const ReceivedFrame& frame) { return {frame.bytes().begin(), frame.bytes().end()}; }

// The next frame, or nothing when none is there now.
std::optional<ReceivedFrame> Next(Endpoint* endpoint) { return endpoint->Poll().value(); }

std::optional<ReceivedFrame> Await(Endpoint* endpoint) {
  const int64_t deadline_us = MonotonicUs() + kDeadlineUs;
  WaitLadder ladder;
  while (MonotonicUs() < deadline_us) {
    if (auto frame = Next(endpoint)) return frame;
    ladder.Wait();
  }
  return std::nullopt;
}

// Two connected ranks: 0 sends on the step channel to 1.
struct TwoRanks {
  explicit TwoRanks(int depth, FaultHook hook = nullptr) : world(2, std::move(hook)) {
    EXPECT_TRUE(receiver->OpenReceive(Channel::kStep, 0, 100, depth).ok());
  }
  void Send(std::vector<uint8_t> bytes) {
    EXPECT_TRUE(sender->Send(Channel::kStep, 1, MakeFrame(std::move(bytes))).ok());
  }
  // What is there now; nothing of no frame.
  std::vector<uint8_t> Received() {
    const auto frame = Next(receiver.get());
    return frame.has_value() ? Bytes(*frame) : std::vector<uint8_t>();
  }
  LoopbackWorld world;
  std::unique_ptr<Endpoint> sender = world.Connect(0);
  std::unique_ptr<Endpoint> receiver = world.Connect(1);
};

FaultHook OnFrame(uint64_t number, Fault fault) {
  return [=](Channel, int, int, uint64_t index) { return index == number ? fault : Fault{}; };
}

TEST(Loopback, DeliversFramesInOrderToAlignedMemory) {
  TwoRanks pair(4);
  for (uint8_t i = 0; i < 4; ++i) pair.Send({i, i});
  for (uint8_t i = 0; i < 4; ++i) {
    const auto frame = Next(pair.receiver.get());
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->channel(), Channel::kStep);
    EXPECT_EQ(frame->source(), 0);
    EXPECT_EQ(Bytes(*frame), (std::vector<uint8_t>{i, i}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(frame->bytes().data()) % 64, 0u);
  }
  EXPECT_FALSE(Next(pair.receiver.get()).has_value());
}

TEST(Loopback, KeepsChannelsAndSourcesApart) {
  LoopbackWorld world(3);
  auto zero = world.Connect(0), one = world.Connect(1), two = world.Connect(2);
  ASSERT_TRUE(two->OpenReceive(Channel::kStep, 1, 10, 1).ok());
  ASSERT_TRUE(two->OpenReceive(Channel::kSetup, 0, 10, 1).ok());
  ASSERT_TRUE(zero->Send(Channel::kStep, 2, MakeFrame({1})).ok());  // nobody listens for steps of rank 0
  ASSERT_TRUE(zero->Send(Channel::kSetup, 2, MakeFrame({2})).ok());
  ASSERT_TRUE(one->Send(Channel::kStep, 2, MakeFrame({3})).ok());
  std::map<Channel, std::vector<uint8_t>> arrived;
  while (const auto frame = Next(two.get())) arrived[frame->channel()] = Bytes(*frame);
  EXPECT_EQ(arrived, (std::map<Channel, std::vector<uint8_t>>{{Channel::kSetup, {2}}, {Channel::kStep, {3}}}));
  EXPECT_TRUE(zero->SendsPending());
  EXPECT_FALSE(one->SendsPending());
}

TEST(Loopback, TakesFramesFromAnyRankOnOneReceive) {
  LoopbackWorld world(3);
  auto zero = world.Connect(0), one = world.Connect(1), two = world.Connect(2);
  ASSERT_TRUE(zero->OpenReceive(Channel::kTelemetry, kAnyRank, 10, 2).ok());
  ASSERT_TRUE(one->Send(Channel::kTelemetry, 0, MakeFrame({1})).ok());
  ASSERT_TRUE(two->Send(Channel::kTelemetry, 0, MakeFrame({2})).ok());
  std::map<int, std::vector<uint8_t>> arrived;
  while (const auto frame = Next(zero.get())) arrived[frame->source()] = Bytes(*frame);
  EXPECT_EQ(arrived, (std::map<int, std::vector<uint8_t>>{{1, {1}}, {2, {2}}}));
}

TEST(Loopback, NobodyWaitsForARankThatHasLeft) {
  TwoRanks pair(1);
  for (uint8_t i = 0; i < 3; ++i) pair.Send({i});
  ASSERT_TRUE(Next(pair.receiver.get()).has_value());
  EXPECT_TRUE(pair.sender->SendsPending());
  pair.receiver.reset();
  EXPECT_FALSE(pair.sender->SendsPending());
  pair.Send({9});
  EXPECT_FALSE(pair.sender->SendsPending());
}

TEST(Loopback, AFrameWaitsWithItsSenderUntilAReceiveIsFree) {
  TwoRanks pair(2);
  for (uint8_t i = 0; i < 3; ++i) pair.Send({i});
  auto first = Next(pair.receiver.get());
  auto second = Next(pair.receiver.get());
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_FALSE(Next(pair.receiver.get()).has_value());
  EXPECT_TRUE(pair.sender->SendsPending());
  EXPECT_EQ(Bytes(*first), std::vector<uint8_t>{0});  // lent memory is not written to

  std::thread([lease = std::move(*first)] {}).join();  // any thread may give it back
  EXPECT_EQ(pair.Received(), std::vector<uint8_t>{2});
  EXPECT_EQ(Bytes(*second), std::vector<uint8_t>{1});
  EXPECT_FALSE(pair.sender->SendsPending());
}

TEST(Loopback, ASendHoldsItsBufferUntilItCompletes) {
  TwoRanks pair(1);
  auto buffer = MakeFrame({1, 2});
  ASSERT_TRUE(pair.sender->Send(Channel::kStep, 1, buffer).ok());
  EXPECT_GT(buffer.use_count(), 1);
  EXPECT_EQ(pair.sender->counters().frames_sent, 0u);
  ASSERT_TRUE(Next(pair.receiver.get()).has_value());
  EXPECT_FALSE(Next(pair.sender.get()).has_value());
  EXPECT_EQ(buffer.use_count(), 1);
  EXPECT_EQ(pair.sender->counters().frames_sent, 1u);
  EXPECT_EQ(pair.sender->counters().bytes_sent, 2u);
  EXPECT_EQ(pair.receiver->counters().frames_received, 1u);
  EXPECT_EQ(pair.receiver->counters().bytes_received, 2u);
}

TEST(Loopback, ALeaseMayOutliveItsEndpoint) {
  TwoRanks pair(1);
  pair.Send({42});
  const auto frame = Next(pair.receiver.get());
  pair.receiver.reset();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Bytes(*frame), std::vector<uint8_t>{42});
}

TEST(Loopback, AFrameLongerThanItsReceiveIsAnErrorAndTheNextOneArrives) {
  TwoRanks pair(1);
  pair.Send(std::vector<uint8_t>(101, 1));
  pair.Send({7});
  EXPECT_THAT(pair.receiver->Poll().status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("frame on channel step from rank 0 has 101 bytes, expected at most 100")));
  EXPECT_EQ(pair.Received(), std::vector<uint8_t>{7});
}

TEST(Loopback, RefusesWrongRanksDepthsAndSecondOpens) {
  TwoRanks pair(1);
  EXPECT_FALSE(pair.receiver->OpenReceive(Channel::kStep, 0, 100, 1).ok());
  EXPECT_FALSE(pair.receiver->OpenReceive(Channel::kStep, kAnyRank, 100, 1).ok());
  EXPECT_FALSE(pair.receiver->OpenReceive(Channel::kSetup, 2, 100, 1).ok());
  EXPECT_FALSE(pair.receiver->OpenReceive(Channel::kSetup, 0, 100, 0).ok());
  EXPECT_FALSE(pair.sender->Send(Channel::kStep, 2, MakeFrame({1})).ok());
  EXPECT_TRUE(pair.receiver->OpenReceive(Channel::kSetup, 0, 100, 1).ok());
}

TEST(LoopbackFault, ADroppedFrameNeverArrivesAndItsSendCompletes) {
  TwoRanks pair(2, OnFrame(0, {Fault::Kind::kDrop}));
  pair.Send({1});
  EXPECT_FALSE(pair.sender->SendsPending());
  pair.Send({2});
  EXPECT_EQ(pair.Received(), std::vector<uint8_t>{2});
  EXPECT_FALSE(Next(pair.receiver.get()).has_value());
}

TEST(LoopbackFault, ADelayedFrameIsNotThereAtOnce) {
  const Fault delay = {.kind = Fault::Kind::kDelay, .delay_us = 3'600'000'000};
  TwoRanks pair(2, OnFrame(0, delay));
  pair.Send({1});
  pair.Send({2});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Next(pair.receiver.get()).has_value());
}

TEST(LoopbackFault, ADelayedFrameHoldsBackThoseBehindIt) {
  const Fault delay = {.kind = Fault::Kind::kDelay, .delay_us = 20'000};
  TwoRanks pair(2, OnFrame(0, delay));
  pair.Send({1});
  pair.Send({2});
  for (uint8_t expected = 1; expected <= 2; ++expected) {
    const auto frame = Await(pair.receiver.get());
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(Bytes(*frame), std::vector<uint8_t>{expected});
  }
}

TEST(LoopbackFault, ACorruptedFrameHasOneByteInverted) {
  const Fault corrupt = {.kind = Fault::Kind::kCorrupt, .offset = 1};
  TwoRanks pair(2, OnFrame(1, corrupt));
  pair.Send({1, 2, 3});
  pair.Send({1, 2, 3});
  EXPECT_EQ(pair.Received(), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(pair.Received(), (std::vector<uint8_t>{1, 0xfd, 3}));
}

TEST(LoopbackFault, ATruncatedFrameKeepsItsBeginning) {
  const Fault truncate = {.kind = Fault::Kind::kTruncate, .offset = 2};
  TwoRanks pair(1, OnFrame(0, truncate));
  pair.Send({1, 2, 3});
  EXPECT_EQ(pair.Received(), (std::vector<uint8_t>{1, 2}));
}

TEST(LoopbackFault, TheHookSeesEachFrameOfAPairAndChannelCounted) {
  std::vector<std::string> seen;
  LoopbackWorld world(2, [&](Channel channel, int source, int destination, uint64_t index) {
    seen.push_back(std::string(ChannelName(channel)) + std::to_string(source) + std::to_string(destination) +
                   std::to_string(index));
    return Fault{};
  });
  auto zero = world.Connect(0), one = world.Connect(1);
  ASSERT_TRUE(zero->Send(Channel::kStep, 1, MakeFrame({1})).ok());
  ASSERT_TRUE(zero->Send(Channel::kStep, 1, MakeFrame({1})).ok());
  ASSERT_TRUE(zero->Send(Channel::kSetup, 1, MakeFrame({1})).ok());
  ASSERT_TRUE(one->Send(Channel::kStep, 0, MakeFrame({1})).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"step010", "step011", "setup010", "step100"}));
}

TEST(Loopback, CarriesARingOfThreads) {
  constexpr int kRanks = 4;
  constexpr int kTurns = 200;
  LoopbackWorld world(kRanks);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto endpoint = world.Connect(rank);
      if (!endpoint->OpenReceive(Channel::kStep, (rank + kRanks - 1) % kRanks, 16, 2).ok()) return;
      const int next = (rank + 1) % kRanks;
      if (rank == 0 && !endpoint->Send(Channel::kStep, next, MakeFrame({0})).ok()) return;
      for (int turn = 0; turn < kTurns; ++turn) {
        const auto frame = Await(endpoint.get());
        if (!frame.has_value() || frame->bytes()[0] != static_cast<uint8_t>(turn)) return;
        if (rank == 0 && turn == kTurns - 1) break;
        const uint8_t forward = static_cast<uint8_t>(rank == 0 ? turn + 1 : turn);
        if (!endpoint->Send(Channel::kStep, next, MakeFrame({forward})).ok()) return;
      }
      ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kRanks);
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
    EXPECT_TRUE(emulated_->Send(channel, destination, MakeFrame(std::vector<uint8_t>(bytes, tag))).ok());
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
  EXPECT_EQ(emulated_->Send(Channel::kStep, 9, MakeFrame({1})).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach
