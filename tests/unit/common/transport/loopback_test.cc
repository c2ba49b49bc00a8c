#include "common/transport/loopback.h"

#include <atomic>
#include <map>
#include <thread>

#include "common/base/clock.h"
#include "common/transport/wait_ladder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kDeadlineUs = 20'000'000;

std::shared_ptr<FrameBuffer> MakeFrame(std::vector<uint8_t> bytes) {
  auto buffer = std::make_shared<FrameBuffer>(64, bytes.size());
  std::copy(bytes.begin(), bytes.end(), buffer->payload());
  buffer->SetMessage(0, bytes.size());
  return buffer;
}

std::vector<uint8_t> Bytes(const ReceivedFrame& frame) { return {frame.bytes().begin(), frame.bytes().end()}; }

// The next frame, or nothing when none is there now.
std::optional<ReceivedFrame> Next(Endpoint* endpoint) {
  auto frame = endpoint->Poll();
  EXPECT_TRUE(frame.ok()) << frame.status();
  return frame.ok() ? std::move(*frame) : std::nullopt;
}

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
  const auto third = Next(pair.receiver.get());
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(Bytes(*third), std::vector<uint8_t>{2});
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
  const auto refused = pair.receiver->Poll();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("frame on channel step from rank 0 has 101 bytes, expected at most 100"));
  const auto frame = Next(pair.receiver.get());
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Bytes(*frame), std::vector<uint8_t>{7});
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
  const auto frame = Next(pair.receiver.get());
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Bytes(*frame), std::vector<uint8_t>{2});
  EXPECT_FALSE(Next(pair.receiver.get()).has_value());
}

TEST(LoopbackFault, ADelayedFrameIsNotThereAtOnce) {
  Fault delay{Fault::Kind::kDelay};
  delay.delay_us = 3'600'000'000;
  TwoRanks pair(2, OnFrame(0, delay));
  pair.Send({1});
  pair.Send({2});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Next(pair.receiver.get()).has_value());
}

TEST(LoopbackFault, ADelayedFrameHoldsBackThoseBehindIt) {
  Fault delay{Fault::Kind::kDelay};
  delay.delay_us = 20'000;
  TwoRanks pair(2, OnFrame(0, delay));
  pair.Send({1});
  pair.Send({2});
  const auto first = Await(pair.receiver.get());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(Bytes(*first), std::vector<uint8_t>{1});
  const auto second = Await(pair.receiver.get());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(Bytes(*second), std::vector<uint8_t>{2});
}

TEST(LoopbackFault, ACorruptedFrameHasOneByteInverted) {
  Fault corrupt{Fault::Kind::kCorrupt};
  corrupt.offset = 1;
  TwoRanks pair(2, OnFrame(1, corrupt));
  pair.Send({1, 2, 3});
  pair.Send({1, 2, 3});
  EXPECT_EQ(Bytes(*Next(pair.receiver.get())), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(Bytes(*Next(pair.receiver.get())), (std::vector<uint8_t>{1, 0xfd, 3}));
}

TEST(LoopbackFault, ATruncatedFrameKeepsItsBeginning) {
  Fault truncate{Fault::Kind::kTruncate};
  truncate.offset = 2;
  TwoRanks pair(1, OnFrame(0, truncate));
  pair.Send({1, 2, 3});
  EXPECT_EQ(Bytes(*Next(pair.receiver.get())), (std::vector<uint8_t>{1, 2}));
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

}  // namespace
}  // namespace stagecoach
