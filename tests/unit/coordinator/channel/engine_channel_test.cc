#include "coordinator/channel/engine_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/counter_rng.h"
#include "common/wire/step_messages.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

TEST(ByteQueue, GivesBytesInOrderFromMemoryThatIsBoundedByWhatWaits) {
  ByteQueue queue;
  std::string expected;  // what waits
  uint64_t random = 1, written = 0, most = 0;
  for (int round = 0; round < 20000; ++round) {
    random = MixBits(random);
    // Long phases of growth and of decline.
    const bool grows = (round / 2000) % 2 == 0;
    const size_t in = random % (grows ? 900 : 300), out = (random >> 20) % (grows ? 300 : 900);
    char* room = queue.Reserve(in);
    ASSERT_LE(queue.capacity(), std::max(ByteQueue::kMinCapacity, 4 * (expected.size() + in)));
    for (size_t i = 0; i < in; ++i) room[i] = static_cast<char>(written++ * 131 >> 3);
    expected.append(room, in);
    queue.Append(in);
    const size_t taken = std::min(out, queue.size());
    ASSERT_EQ(std::memcmp(queue.data(), expected.data(), expected.size()), 0);
    queue.Take(taken);
    expected.erase(0, taken);
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_LE(queue.capacity(), std::max(ByteQueue::kMinCapacity, 4 * expected.size()));
    most = std::max<uint64_t>(most, queue.capacity());
  }
  EXPECT_GT(most, 500000u);
}

TEST(WaterMark, StopsAtTheHighMarkAndGoesOnBelowTheLowOne) {
  WaterMark mark(100, 40);
  EXPECT_FALSE(mark.Waits(99));
  EXPECT_TRUE(mark.Waits(100));
  EXPECT_TRUE(mark.Waits(70));
  EXPECT_TRUE(mark.Waits(40));
  EXPECT_FALSE(mark.Waits(39));
  EXPECT_FALSE(mark.Waits(70));
}

struct EngineChannelTest : ::testing::Test {
  EngineChannelTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here_ = std::make_unique<EngineChannel>(ends[0]);
    there_ = std::make_unique<EngineChannel>(ends[1]);
  }
  std::unique_ptr<EngineChannel> here_, there_;
};

pb::EngineMessage Submit(uint64_t request, int tokens) {
  pb::EngineMessage message;
  message.mutable_submit()->set_request(request);
  for (int i = 0; i < tokens; ++i) message.mutable_submit()->add_prompt(i);
  return message;
}

TEST_F(EngineChannelTest, DeliversMessagesInOrderHoweverTheSocketCutsThem) {
  // More than a socket takes at once, so that parts wait at the sender.
  for (uint64_t i = 1; i <= 40; ++i) ASSERT_TRUE(here_->Send(Submit(i, static_cast<int>(i) * 3000)).ok());
  EXPECT_TRUE(here_->WritePending());
  uint64_t received = 0;
  while (received < 40) {
    ASSERT_TRUE(here_->Flush().ok());
    const auto message = there_->Receive().value();
    if (!message.has_value()) continue;
    ++received;
    EXPECT_EQ(message->submit().request(), received);
    EXPECT_EQ(message->submit().prompt_size(), static_cast<int>(received) * 3000);
  }
  EXPECT_FALSE(here_->WritePending());
  EXPECT_FALSE(there_->Receive().value().has_value());
}

TEST_F(EngineChannelTest, HoldsNoMoreMemoryThanItsBacklogNeedsHoweverLongThatStays) {
  // The reader is always some messages behind, so that neither side is ever empty.
  constexpr uint64_t kMessages = 20000;
  uint64_t received = 0;
  size_t most_pending = 0, most_held = 0;
  for (uint64_t sent = 1; sent <= kMessages; ++sent) {
    ASSERT_TRUE(here_->Send(Submit(sent, 300)).ok());
    most_pending = std::max(most_pending, here_->pending_bytes());
    most_held = std::max({most_held, here_->buffer_bytes(), there_->buffer_bytes()});
    if (sent < 2000) continue;
    ASSERT_EQ(there_->Receive().value().value().submit().request(), ++received);
  }
  EXPECT_GT(most_pending, 100u << 10);
  EXPECT_LT(most_held, 4 * most_pending + (256u << 10));
  while (received < kMessages) {
    const auto message = there_->Receive();
    ASSERT_TRUE(message.ok() && here_->Flush().ok()) << message.status();
    if (message->has_value()) ++received;
  }
  EXPECT_LE(here_->buffer_bytes(), 256u << 10);
  EXPECT_LE(there_->buffer_bytes(), 256u << 10);
}

TEST_F(EngineChannelTest, ReadsTheSocketOnceForAllMessagesThatCameTogether) {
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(here_->Send(Submit(i, 10)).ok());
  EXPECT_FALSE(there_->Buffered());
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(there_->Receive().value().value().submit().request(), i);
    EXPECT_EQ(there_->Buffered(), i < 3);
  }
}

TEST_F(EngineChannelTest, DeliversWhatWasSentBeforeThePeerWentAway) {
  ASSERT_TRUE(there_->Send(Submit(1, 10)).ok());  // stays unread by the peer
  ASSERT_TRUE(here_->Send(Submit(2, 10)).ok());
  here_.reset();
  EXPECT_EQ(there_->Receive().value().value().submit().request(), 2u);
  EXPECT_EQ(there_->Receive().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(there_->Receive().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(there_->Send(Submit(3, 1)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineChannelTest, RefusesLengthsAndBytesThatAreNoMessage) {
  ASSERT_EQ(send(here_->descriptor(), "\x01\0\0\x04", 4, 0), 4);
  EXPECT_THAT(there_->Receive().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("67108865 bytes, expected at most 67108864")));

  ASSERT_EQ(send(there_->descriptor(), "\x02\0\0\0\xff\xff", 6, 0), 6);
  EXPECT_EQ(here_->Receive().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EngineSocket, ConnectsByPathAndRefusesOnesThatAreTooLong) {
  const testing::TempDir directory;
  const std::string path = directory.File("s");
  EXPECT_EQ(ConnectLocal(path).status().code(), absl::StatusCode::kUnavailable);
  const auto listener = ListenLocal(path).value();
  EXPECT_LT(accept(listener, nullptr, nullptr), 0);  // does not wait
  const auto client = ConnectLocal(path).value();
  EXPECT_FALSE(ListenLocal(path).ok());
  EXPECT_THAT(ListenLocal(directory.File(std::string(200, 'x'))).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set TMPDIR")));
  close(client);
  close(listener);
}

TEST(EngineMessages, KeepEveryFieldOfTheStepStructs) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.05f;
  params.repeat_penalty = 1.1f;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 0.25f;
  params.repeat_last_n = -1;
  params.seed = ~0ull;
  params.logprobs = 5;
  params.logit_bias = {{7, -100.0f}, {8, 1.5f}};
  EXPECT_EQ(FromProto(ToProto(params)), params);
  const SampledToken token = {3, 12, 99, -1.25f, {{99, -1.25f}, {5, -2.0f}}};
  EXPECT_EQ(FromProto(ToProto(token)), token);
  const TargetLogprobs scores = {3, 10, {-1.0f, 0.0f, -3.5f}};
  EXPECT_EQ(FromProto(ToProto(scores)), scores);
}

}  // namespace
}  // namespace stagecoach
