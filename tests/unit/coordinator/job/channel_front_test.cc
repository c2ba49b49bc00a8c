// The engine with a front that is a socket: back-pressure, and that nothing is lost on the way.

#include "coordinator/job/channel_front.h"

#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/engine/engine.h"
#include "gtest/gtest.h"
#include "tests/testing/engine/instant_pipeline.h"

namespace stagecoach {
namespace {

constexpr int kSequences = 64;
constexpr int kTokens = 400;

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

struct ChannelFrontTest : ::testing::Test {
  ChannelFrontTest() : roster_(std::vector<pb::Hello>(1), 1000000, 0), scheduler_(RoomFor(kSequences)) {
    plan_.stages.resize(1);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    channel_ = std::make_unique<EngineChannel>(ends[0]);
    far_end_ = std::make_unique<EngineChannel>(ends[1]);
    front_ = std::make_unique<ChannelFront>(channel_.get(), &report_);
    engine_ = std::make_unique<Engine>(&pipeline_, &scheduler_, front_.get(), &clock_, /*vocab=*/1000, nullptr);
  }

  JobPlan plan_;
  Roster roster_;
  JobReport report_{pb::ConfigureJob(), &plan_, &roster_};
  InstantPipeline pipeline_{kMaxLogprobs};
  Scheduler scheduler_;
  SystemClock clock_;
  std::unique_ptr<EngineChannel> channel_, far_end_;
  std::unique_ptr<ChannelFront> front_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ChannelFrontTest, KeepsTheEnginesMemoryBoundedWhileTheFrontReadsNothingAndLosesNoToken) {
  for (uint64_t request = 1; request <= kSequences; ++request) ASSERT_TRUE(far_end_->Send(Submit(request)).ok());
  uint64_t submitted = 0;
  for (int idle = 0; idle < 50;) {
    ASSERT_TRUE(engine_->Step().ok());
    idle = std::exchange(submitted, pipeline_.submitted()) == pipeline_.submitted() ? idle + 1 : 0;
  }
  EXPECT_LT(submitted, static_cast<uint64_t>(kTokens)) << "the engine goes on although nobody reads";
  EXPECT_GE(channel_->pending_bytes(), 8u << 20);
  EXPECT_LT(channel_->pending_bytes(), 9u << 20);  // the mark, and what was in flight
  const size_t pending = channel_->pending_bytes();
  ASSERT_TRUE(front_->Report(engine_->Status()).ok());
  EXPECT_EQ(channel_->pending_bytes(), pending) << "who does not read needs no status either";

  // The front wakes up: the engine goes on once half is read, and every token comes, in order.
  std::map<uint64_t, int32_t> tokens;
  size_t finished = 0, pending_when_it_went_on = 0;
  while (finished < kSequences) {
    const auto message = far_end_->Receive().value();
    if (!message.has_value()) {
      const size_t pending_before = channel_->pending_bytes();
      ASSERT_TRUE(engine_->Step().ok());
      if (pending_when_it_went_on == 0 && pipeline_.submitted() > submitted) pending_when_it_went_on = pending_before;
      continue;
    }
    finished += message->events().finished_size();
    for (const pb::TokenDelta& delta : message->events().tokens()) {
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

TEST_F(ChannelFrontTest, CarriesWhatARequestTookHowFarItsPromptIsAndWhyItWasRejected) {
  pb::EngineMessage asking = Submit(1), large = Submit(2);
  for (int i = 0; i < 900; ++i) asking.mutable_submit()->add_prompt(1);
  asking.mutable_submit()->set_report_progress(true);
  for (int i = 0; i < 2000; ++i) large.mutable_submit()->add_prompt(1);
  for (const pb::EngineMessage& message : {asking, large}) ASSERT_TRUE(far_end_->Send(message).ok());
  const int64_t start_us = MonotonicUs();
  pb::RequestEvents all;
  bool reported = false;
  while (all.finished_size() < 2 || !reported) {
    ASSERT_TRUE(engine_->Step().ok());
    ASSERT_LT(MonotonicUs() - start_us, 60000000);
    const auto message = far_end_->Receive().value();
    if (!message.has_value()) continue;
    all.MergeFrom(message->events());
    reported = reported || message->has_status();
  }
  EXPECT_EQ(all.finished(0).request(), 2u);
  EXPECT_EQ(all.finished(0).code(), pb::RequestFinished::CODE_NO_ROOM);
  ASSERT_GE(all.prefills_size(), 1);
  EXPECT_EQ(all.prefills(0).request(), 1u);
  EXPECT_EQ(all.prefills(0).processed(), 512);
  EXPECT_EQ(all.prefills(0).total(), 904);
  EXPECT_TRUE(all.tokens(0).has_cost());
  EXPECT_FALSE(all.tokens(1).has_cost());
  EXPECT_EQ(all.finished(1).code(), pb::RequestFinished::CODE_UNSPECIFIED);
  EXPECT_GT(all.finished(1).cost().prefill_us(), 0);
  EXPECT_EQ(all.finished(1).cost().prefill_us(), all.tokens(0).cost().prefill_us());
}

TEST_F(ChannelFrontTest, HandsOnWhatAConversationsNextTurnSharesOfARequest) {
  std::vector<int64_t> handed_on;
  for (const int64_t tokens : {int64_t{3}, int64_t{-7}, int64_t{-2}}) {
    pb::EngineMessage message = Submit(1);
    if (tokens != -2) message.mutable_submit()->set_conversation_tokens(tokens);
    ASSERT_TRUE(far_end_->Send(message).ok());
    std::optional<FrontCommand> command;
    while (!command.has_value()) command = front_->Next().value();
    handed_on.push_back(std::get<SubmitCommand>(*command).spec.conversation_tokens);
  }
  EXPECT_EQ(handed_on, (std::vector<int64_t>{3, -1, -1})) << "what is no number of tokens says nothing";
}

TEST_F(ChannelFrontTest, ReportsTheStatusWithWhatIsKnownOfEveryStage) {
  pb::Heartbeat heartbeat;
  heartbeat.set_bytes_sent(777);
  heartbeat.set_grammar_mask_ns(2'500'000'000);
  heartbeat.set_grammar_mask_hits(9);
  heartbeat.set_resident_bytes(12345);
  roster_.Heard(heartbeat, MonotonicUs() - 2000000);
  for (uint64_t request = 1; request <= 2; ++request) ASSERT_TRUE(far_end_->Send(Submit(request)).ok());
  for (int step = 0; step < 11; ++step) ASSERT_TRUE(engine_->Step().ok());
  while (far_end_->Receive()->has_value()) {
  }
  ASSERT_TRUE(front_->Report(engine_->Status()).ok());
  const auto message = far_end_->Receive();
  ASSERT_TRUE(message.ok() && message->has_value() && (*message)->has_status()) << message.status();
  const pb::EngineStatus& status = (*message)->status();
  EXPECT_FALSE(status.ended());
  EXPECT_EQ(status.requests_running(), 2);
  EXPECT_EQ(status.blocks_used(0), 2);
  EXPECT_EQ(status.blocks_free(0), kSequences * 32 - 2);
  ASSERT_EQ(status.heartbeat_age_us_size(), 1);
  EXPECT_GE(status.heartbeat_age_us(0), 2000000);
  EXPECT_EQ(status.statistics().prefill_rows(), 8u);
  EXPECT_EQ(status.statistics().prefill_sizes(3), 1u);
  EXPECT_EQ(status.statistics().stages(0).bytes_sent(), 777u);
  EXPECT_DOUBLE_EQ(status.statistics().stages(0).grammar_mask_s(), 2.5);
  EXPECT_EQ(status.statistics().stages(0).grammar_mask_hits(), 9u);
  EXPECT_GT(status.statistics().decode_rows(), 0u);
  ASSERT_EQ(status.statistics().stages_size(), 1);
  EXPECT_EQ(status.statistics().stages(0).resident_bytes(), 12345u);
  EXPECT_GT(status.statistics().stages(0).compute_s(), 0);
}

}  // namespace
}  // namespace stagecoach
