// The engine's loop alone: the stages cost nothing, the test is the front.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <memory>

#include "coordinator/channel/water_mark.h"
#include "coordinator/engine/engine.h"
#include "tests/unit/coordinator/engine/instant_pipeline.h"

namespace stagecoach {
namespace {

constexpr int kSequences = 64;
constexpr int kTokens = 400;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_seqs = kSequences;
  options.max_num_batched_tokens = 512;
  options.prefill_chunk = 512;
  options.block_tokens = 32;
  options.group_blocks = {kSequences * 32};
  options.context = 1024;
  options.max_open_tokens = 1024;
  return options;
}

pb::EngineMessage Submit(uint64_t request) {
  pb::EngineMessage message;
  pb::SubmitRequest* submit = message.mutable_submit();
  submit->set_request(request);
  for (int i = 0; i < 4; ++i) submit->add_prompt(i);
  submit->mutable_sampling()->set_top_p(1);
  submit->mutable_sampling()->set_repeat_penalty(1);
  submit->mutable_sampling()->set_logprobs(kMaxLogprobs);
  submit->set_max_new_tokens(kTokens);
  return message;
}

class EngineLoopTest : public testing::Test {
 protected:
  EngineLoopTest() : pipeline_(kMaxLogprobs) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    channel_ = std::make_unique<EngineChannel>(ends[0]);
    front_ = std::make_unique<EngineChannel>(ends[1]);
    engine_ = std::make_unique<Engine>(&pipeline_, Options(), /*vocab=*/1000, channel_.get(), nullptr);
  }

  InstantPipeline pipeline_;
  std::unique_ptr<EngineChannel> channel_, front_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineLoopTest, KeepsItsMemoryBoundedWhileTheFrontReadsNothingAndLosesNoToken) {
  for (uint64_t request = 1; request <= kSequences; ++request) ASSERT_TRUE(front_->Send(Submit(request)).ok());
  uint64_t submitted = 0;
  for (int step = 0; step < 1500; ++step) {
    ASSERT_TRUE(engine_->Step().ok());
    if (step == 1000) submitted = pipeline_.submitted();
  }
  EXPECT_EQ(pipeline_.submitted(), submitted) << "the engine goes on although nobody reads";
  EXPECT_LT(submitted, static_cast<uint64_t>(kTokens));
  EXPECT_GE(channel_->pending_bytes(), 8u << 20);
  EXPECT_LT(channel_->pending_bytes(), 9u << 20);  // the mark, and what was in flight

  // The front wakes up: the engine goes on once half is read, and every token comes, in order.
  std::map<uint64_t, int32_t> tokens;
  size_t finished = 0, pending_when_it_went_on = 0;
  while (finished < kSequences) {
    const auto message = front_->Receive();
    ASSERT_TRUE(message.ok()) << message.status();
    if (!message->has_value()) {
      const size_t pending = channel_->pending_bytes();
      ASSERT_TRUE(engine_->Step().ok());
      if (pending_when_it_went_on == 0 && pipeline_.submitted() > submitted) pending_when_it_went_on = pending;
      continue;
    }
    finished += (*message)->events().finished_size();
    for (const pb::TokenDelta& delta : (*message)->events().tokens()) {
      for (const pb::SampledToken& token : delta.tokens()) {
        ASSERT_EQ(token.position(), 4 + tokens[delta.request()]++);
      }
    }
  }
  for (const auto& [request, count] : tokens) EXPECT_EQ(count, kTokens) << request;
  EXPECT_GT(pending_when_it_went_on, 3u << 20);
  EXPECT_LT(pending_when_it_went_on, 5u << 20);
  EXPECT_LT(channel_->buffer_bytes(), 1u << 20);
}

TEST_F(EngineLoopTest, SaysWhatAResultBroughtForAllRequestsInOneMessage) {
  for (uint64_t request = 1; request <= kSequences; ++request) ASSERT_TRUE(front_->Send(Submit(request)).ok());
  int messages = 0, tokens = 0, ends = 0;
  while (ends < kSequences) {
    ASSERT_TRUE(engine_->Step().ok());
    const auto message = front_->Receive();
    ASSERT_TRUE(message.ok()) << message.status();
    if (!message->has_value()) continue;
    ++messages;
    for (const pb::TokenDelta& delta : (*message)->events().tokens()) tokens += delta.tokens_size();
    ends += (*message)->events().finished_size();
  }
  EXPECT_EQ(tokens, kSequences * kTokens);
  EXPECT_EQ(messages, static_cast<int>(pipeline_.submitted()));
}

}  // namespace
}  // namespace stagecoach
