// The engine's loop alone, and its meter: the stages cost nothing, the test is the front, and time goes by as the test
// wants.

#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/bubble_meter.h"
#include "coordinator/engine/engine.h"
#include "gtest/gtest.h"
#include "tests/testing/engine/instant_pipeline.h"

namespace stagecoach {
namespace {

// A result that spent `compute_us` on each of two stages.
StepResult Result(uint64_t number, int64_t compute_us) {
  StepResult result;
  result.number = number;
  for (int stage = 0; stage < 2; ++stage) {
    result.times.push_back({.stage = stage, .received_us = 0, .start_us = 100, .end_us = 100 + compute_us});
  }
  return result;
}

struct BubbleMeterTest : ::testing::Test {
  BubbleMeter meter{2};
};

TEST_F(BubbleMeterTest, OneSequenceOverTwoStagesCannotDoBetterThanHalf) {
  int64_t now = 0;
  for (uint64_t i = 0; i < 10; ++i) {  // each waits for the one before: 2 x 100 us of work in 250 us
    meter.Submitted(i, now);
    now += 250;
    meter.Confirmed(Result(i, 100), now);
  }
  EXPECT_DOUBLE_EQ(meter.Floor(), 0.5);
  EXPECT_DOUBLE_EQ(meter.Measured(0), 1 - 2000.0 / (2 * 2500.0));
  EXPECT_EQ(meter.busy_us(0), 2500);
}

TEST_F(BubbleMeterTest, TwoIndependentMicroBatchesFillTwoStagesButForFillAndDrain) {
  constexpr int kCount = 50;
  meter.Submitted(0, 0);
  meter.Submitted(1, 0);
  for (uint64_t i = 0; i < kCount; ++i) {
    meter.Confirmed(Result(i, 100), 100 * (i + 2));
    if (i + 2 < kCount) meter.Submitted(i + 2, 100 * (i + 2));
  }
  EXPECT_NEAR(meter.Floor(), 1.0 / (kCount + 1), 1e-9);  // (S-1)/(S-1+M)
  EXPECT_NEAR(meter.Measured(0), meter.Floor(), 1e-9);
}

TEST_F(BubbleMeterTest, TimeForVoidRowsIsBusyButABubble) {
  for (uint64_t i = 0; i < 4; ++i) meter.Submitted(i, 0);
  for (uint64_t i = 0; i < 4; ++i) meter.Confirmed(Result(i, 100), 100 * (i + 2), i % 2 == 0 ? 0 : 0.75);
  EXPECT_EQ(meter.compute_us(0), 400);
  EXPECT_EQ(meter.void_us(0), 150);
  EXPECT_EQ(meter.void_us(1), 150);
  EXPECT_DOUBLE_EQ(meter.Measured(0), 1 - 2 * 250 / (2 * 500.0));
  EXPECT_DOUBLE_EQ(meter.Floor(), meter.Measured(0)) << "the same work";
}

TEST_F(BubbleMeterTest, ATimeInWhichThePipelineNeverEmptiesIsBusyWhileItLasts) {
  meter.Submitted(0, 0);
  meter.Submitted(1, 0);
  for (uint64_t i = 0; i < 50; ++i) {
    meter.Confirmed(Result(i, 100), 100 * (static_cast<int64_t>(i) + 2));
    meter.Submitted(i + 2, 100 * (static_cast<int64_t>(i) + 2));
  }
  EXPECT_EQ(meter.busy_us(5100), 5100);
  EXPECT_DOUBLE_EQ(meter.Measured(5100), 1 - 50 * 200 / (2 * 5100.0));
}

TEST_F(BubbleMeterTest, AHopIsWhatSendsTookOfLate) {
  int64_t now = 0;
  const auto sent = [&](uint64_t number, int64_t start_us, int64_t us) {
    StepResult result = Result(number, 10);
    result.times[0].send_start_us = start_us;
    result.times[0].send_us = us;
    meter.Submitted(number, now);
    meter.Confirmed(result, now += 100000);
  };
  sent(0, 0, 0);  // there was none
  EXPECT_EQ(meter.hop_us(0), 0);
  sent(1, 5, 800);
  EXPECT_EQ(meter.hop_us(0), 800);
  sent(2, 5, 800);  // the same once more
  sent(3, 9, 1600);
  EXPECT_EQ(meter.hop_us(0), 900);
  EXPECT_EQ(meter.hop_us(1), 0);
  for (uint64_t i = 4; i < 60; ++i) sent(i, static_cast<int64_t>(10 * i), 40);
  EXPECT_NEAR(static_cast<double>(meter.hop_us(0)), 40, 1);
}

TEST_F(BubbleMeterTest, IdleTimeWithoutWorkIsNotABubble) {
  meter.Submitted(0, 0);
  meter.Confirmed(Result(0, 100), 200);
  meter.Submitted(1, 1000000);
  meter.Confirmed(Result(1, 100), 1000200);
  EXPECT_EQ(meter.busy_us(0), 400);
  EXPECT_DOUBLE_EQ(meter.Measured(0), 0.5);
}

TEST_F(BubbleMeterTest, NoStageIsBelievedToHaveWorkedLongerThanTheMicroBatchWasInFlight) {
  int64_t now = 1000000;
  for (uint64_t i = 0; i < 100; ++i) {
    meter.Submitted(i, now);
    now += 250;
    StepResult result = Result(i, 100);
    result.times[1] = {.stage = 1, .start_us = 0, .end_us = INT64_MAX, .send_us = INT64_MAX};
    meter.Confirmed(result, now);
  }
  EXPECT_EQ(meter.compute_us(0), 100 * 100);
  EXPECT_EQ(meter.compute_us(1), 100 * 250);
  EXPECT_EQ(meter.send_us(0), 0);
  EXPECT_LE(meter.send_us(1), 100 * 100 * 250);
  EXPECT_GE(meter.Measured(0), 0);
  EXPECT_LE(meter.Measured(0), 1);
}

TEST_F(BubbleMeterTest, ASendThatIsToldTwiceCountsOnce) {
  for (uint64_t i = 0; i < 4; ++i) {
    meter.Submitted(i, static_cast<int64_t>(i) * 1000);
    StepResult result = Result(i, 100);
    result.times[0].send_us = 7;
    result.times[0].send_start_us = i < 3 ? 50 : 3050;
    meter.Confirmed(result, static_cast<int64_t>(i) * 1000 + 500);
  }
  EXPECT_EQ(meter.send_us(0), 14);
}

// Frames queue for a link that is slower than the stage: each is under way from when it was computed.
TEST_F(BubbleMeterTest, TheTimeOfSendingIsThatInWhichAnythingWasSent) {
  constexpr std::pair<int64_t, int64_t> kSends[] = {{1000, 2500}, {2000, 4000}, {3000, 5500}, {20000, 2500}};
  for (uint64_t i = 0; i < std::size(kSends); ++i) {
    meter.Submitted(i, static_cast<int64_t>(i) * 10000);
    StepResult result = Result(i, 100);
    std::tie(result.times[0].send_start_us, result.times[0].send_us) = kSends[i];
    meter.Confirmed(result, static_cast<int64_t>(i) * 10000 + 9000);
  }
  EXPECT_EQ(meter.send_us(0), 7500 + 2500) << "from 1 to 8.5 ms and from 20 to 22.5, not the sum of 14.5";
}

TEST_F(BubbleMeterTest, WithoutWorkThereIsNoBubble) {
  const BubbleMeter meter(3);
  EXPECT_EQ(meter.Measured(0), 0);
  EXPECT_EQ(meter.Floor(), 0);
}

constexpr int kSequences = 64;
constexpr int kTokens = 50;

SubmitCommand Submit(RequestId request) {
  SubmitCommand command;
  command.request = request;
  command.spec.prompt = {1, 2, 3, 4};
  command.spec.max_new_tokens = kTokens;
  return command;
}

// Keeps what it is told.
class RecordingFront : public Front {
 public:
  absl::StatusOr<std::optional<FrontCommand>> Next() override {
    if (commands.empty()) return std::optional<FrontCommand>();
    std::optional<FrontCommand> command = std::move(commands.front());
    commands.pop_front();
    return command;
  }
  absl::Status Publish(const RequestEvents& published) override {
    events.push_back(published);
    if (on_publish) on_publish();
    return absl::OkStatus();
  }
  absl::Status Report(const EngineStatus& status) override {
    reports.push_back(status);
    return absl::OkStatus();
  }
  bool Behind() override { return behind; }
  bool Wait(int64_t) override {
    ++waits;
    return false;
  }

  std::deque<FrontCommand> commands;
  std::vector<RequestEvents> events;
  std::vector<EngineStatus> reports;
  std::function<void()> on_publish;
  bool behind = false;
  int waits = 0;
};

// Time passes by pauses, and by a microsecond a look.
class FakeClock : public EngineClock {
 public:
  int64_t NowUs() override { return ++now_us; }
  void Pause(int64_t us) override { now_us += us; }
  int64_t now_us = 0;
};

struct EngineLoopTest : ::testing::Test {
  EngineLoopTest() { Begin(RoomFor(kSequences)); }
  void Begin(const SchedulerOptions& options, Engine::RequestCheck check = nullptr) {
    scheduler_ = std::make_unique<Scheduler>(options);
    engine_ = std::make_unique<Engine>(&pipeline_, scheduler_.get(), &front_, &clock_, 1000, nullptr, nullptr, nullptr,
                                       std::move(check));
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(engine_->Step().ok());
  }
  // With so long between two steps.
  void StepsUntilEnded(size_t requests, int64_t pause_us = 0) {
    for (; Ended() < requests && !HasFatalFailure(); clock_.now_us += pause_us) Steps(1);
  }
  size_t Ended() const {
    size_t ended = 0;
    for (const RequestEvents& events : front_.events) ended += events.ends.size();
    return ended;
  }
  // What deltas said, by request.
  std::map<RequestId, std::vector<RequestCost>> Told() const {
    std::map<RequestId, std::vector<RequestCost>> told;
    for (const RequestEvents& events : front_.events) {
      for (const RequestDelta& delta : events.deltas) {
        if (delta.cost.has_value()) told[delta.request].push_back(*delta.cost);
      }
    }
    return told;
  }

  InstantPipeline pipeline_{0};
  RecordingFront front_;
  FakeClock clock_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineLoopTest, PublishesWhatAResultBroughtForAllRequestsAtOnce) {
  for (RequestId request = 1; request <= kSequences; ++request) front_.commands.push_back(Submit(request));
  StepsUntilEnded(kSequences);
  EXPECT_EQ(front_.events.size(), pipeline_.submitted());
  std::map<RequestId, int32_t> tokens;
  for (const RequestEvents& events : front_.events) {
    EXPECT_GT(events.at_us, 0);
    EXPECT_EQ(events.deltas.size(), static_cast<size_t>(kSequences));
    for (const RequestDelta& delta : events.deltas) {
      for (const SampledToken& token : delta.tokens) ASSERT_EQ(token.position, 4 + tokens[delta.request]++);
    }
  }
  for (const auto& [request, count] : tokens) EXPECT_EQ(count, kTokens) << request;
}

TEST_F(EngineLoopTest, SubmitsTheSuccessorOfAResultBeforeItPublishesWhatThatBrought) {
  front_.commands.push_back(Submit(1));
  // What was published has come back, and one more is under way, until the last token is there.
  std::vector<uint64_t> submitted;
  front_.on_publish = [&] { submitted.push_back(pipeline_.submitted()); };
  StepsUntilEnded(1);
  ASSERT_EQ(submitted.size(), static_cast<size_t>(kTokens));
  for (size_t i = 0; i + 1 < submitted.size(); ++i) EXPECT_EQ(submitted[i], i + 2);
}

TEST_F(EngineLoopTest, SubmitsNothingWhileTheFrontIsBehindAndTakesWhatComesBack) {
  front_.commands.push_back(Submit(1));
  Steps(5);
  const uint64_t submitted = pipeline_.submitted();
  front_.behind = true;
  Steps(10);
  EXPECT_EQ(pipeline_.submitted(), submitted);
  EXPECT_EQ(engine_->Status().in_flight, 0);
  EXPECT_EQ(front_.events.size(), submitted);
  front_.behind = false;
  StepsUntilEnded(1);
}

TEST_F(EngineLoopTest, ReportsOnceASecondInWorkAndIdlenessWhatItDidSinceItBegan) {
  front_.commands.push_back(Submit(1));
  front_.commands.push_back(Submit(2));
  StepsUntilEnded(2, 100000);
  const size_t reports = front_.reports.size();
  EXPECT_NEAR(static_cast<double>(reports), kTokens / 10, 1);
  EXPECT_EQ(front_.reports.front().running, 2);
  EXPECT_EQ(front_.reports.front().blocks_used, std::vector<int32_t>{2});
  EXPECT_EQ(front_.reports.front().blocks_free, std::vector<int32_t>{kSequences * 32 - 2});
  for (size_t i = 1; i < reports; ++i) {
    EXPECT_GT(front_.reports[i].counters.decode_rows, front_.reports[i - 1].counters.decode_rows);
    EXPECT_GT(front_.reports[i].busy_us, front_.reports[i - 1].busy_us);
  }
  // Idle: it sleeps in the front's care, and goes on reporting.
  clock_.now_us += 5000000;
  Steps(3);
  EXPECT_EQ(front_.reports.size(), reports + 1);
  EXPECT_GT(front_.waits, 0);
  EXPECT_EQ(front_.reports.back().running, 0);
  EXPECT_EQ(front_.reports.back().counters.decode_rows, 2u * (kTokens - 1));
  EXPECT_EQ(front_.reports.back().counters.prefill_rows, 8u);
}

TEST_F(EngineLoopTest, TellsTheSchedulerWhatTheSlowestStageTook) {
  SchedulerOptions options = RoomFor(kSequences);
  options.policy = Policy::kThrottled;
  options.slo_itl_s = 0.001;
  Begin(options);
  front_.commands.push_back(Submit(1));
  Steps(20);
  SubmitCommand prompt = Submit(2);
  prompt.spec.prompt.assign(400, 1);
  front_.commands.push_back(prompt);
  const uint64_t before = scheduler_->counters().prefill_rows;
  Steps(1);
  // All of it: these steps take nothing, and would all stay in the gap. The least it would be as long as nobody knew.
  EXPECT_EQ(scheduler_->counters().prefill_rows - before, 400u);
}

TEST_F(EngineLoopTest, RejectsEndsAndCancelsWithTheirReasons) {
  SubmitCommand none = Submit(1);
  none.spec.output = std::vector<TokenId>(kTokens, 7);
  SubmitCommand alien = Submit(2);
  alien.spec.prompt[3] = 1000;
  front_.commands = {none, alien, Submit(3), CancelCommand{3}, CancelCommand{99}};
  Steps(1);
  ASSERT_EQ(front_.events.size(), 1u);
  const std::vector<RequestEnd>& ends = front_.events[0].ends;
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[0].reason, FinishReason::kLength);
  EXPECT_EQ(ends[1].reason, std::nullopt);
  EXPECT_NE(ends[1].error.find("1000"), std::string::npos) << ends[1].error;
  EXPECT_FALSE(ends[1].no_room);
  EXPECT_EQ(ends[2].reason, FinishReason::kCancelled);
  Steps(3);
  EXPECT_EQ(front_.events.size(), 1u);

  front_.commands = {Submit(4), Submit(4)};
  EXPECT_EQ(engine_->Step().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineLoopTest, WhatTheCheckRefusesIsRejectedWhateverItsErrorIs) {
  const absl::Status errors[] = {absl::FailedPreconditionError("no vocabulary"), absl::OutOfRangeError("no vocabulary"),
                                 absl::InternalError("no vocabulary")};
  Begin(RoomFor(2), [&](const SequenceSpec& spec, std::optional<GrammarMatcher>*) { return errors[spec.prompt[0]]; });
  for (RequestId request = 0; request < std::size(errors); ++request) {
    front_.commands.push_back(Submit(request));
    std::get<SubmitCommand>(front_.commands.back()).spec.prompt[0] = static_cast<TokenId>(request);
  }
  Steps(1);
  ASSERT_EQ(Ended(), std::size(errors));
  for (const RequestEnd& end : front_.events[0].ends) {
    EXPECT_EQ(end.reason, std::nullopt) << end.request;
    EXPECT_EQ(end.error, "no vocabulary");
    EXPECT_FALSE(end.no_room);
  }
}

TEST_F(EngineLoopTest, ReportsInTimeAlsoWhereRequestsTakeLongToCheck) {
  constexpr int kRequests = 20;
  int checked = 0;
  Begin(RoomFor(kRequests), [&](const SequenceSpec&, std::optional<GrammarMatcher>*) {
    clock_.now_us += 400000;
    ++checked;
    return absl::OkStatus();
  });
  for (RequestId request = 1; request <= kRequests; ++request) front_.commands.push_back(Submit(request));
  Steps(1);
  EXPECT_EQ(checked, 3) << "until a second was over";
  EXPECT_EQ(front_.reports.size(), 1u);
  EXPECT_GT(pipeline_.submitted(), 0u) << "these do not wait for the others";
  Steps(10);
  EXPECT_EQ(checked, kRequests);
  EXPECT_GE(front_.reports.size(), 6u);
  StepsUntilEnded(kRequests);
}

TEST_F(EngineLoopTest, SaysOfWhatItRejectsWhetherRoomIsMissing) {
  SubmitCommand large = Submit(1);
  large.spec.prompt.assign(2000, 1);
  front_.commands = {large};
  Steps(1);
  ASSERT_EQ(Ended(), 1u);
  EXPECT_TRUE(front_.events[0].ends[0].no_room) << front_.events[0].ends[0].error;
}

TEST_F(EngineLoopTest, TellsWhatARequestWaitedAndWhatItsPromptTook) {
  SchedulerOptions options = RoomFor(1);  // one after the other
  options.prefill_chunk = 2;
  options.max_num_batched_tokens = 2;
  Begin(options);
  front_.commands = {Submit(1), Submit(2)};
  StepsUntilEnded(2, 1000);
  std::map<RequestId, std::vector<RequestCost>> told = Told();
  std::map<RequestId, RequestCost> ended;
  for (const RequestEvents& events : front_.events) {
    for (const RequestEnd& end : events.ends) ended[end.request] = end.cost;
  }
  for (const RequestId request : {1, 2}) {
    ASSERT_EQ(told[request].size(), 1u) << "with its first token alone";
    EXPECT_EQ(told[request][0].queue_us, ended[request].queue_us);
    EXPECT_EQ(told[request][0].prefill_us, ended[request].prefill_us) << "to the first token, not to the last";
    EXPECT_NEAR(static_cast<double>(ended[request].prefill_us), 1000.0 * static_cast<double>(request), 200)
        << "two chunks; the second request was submitted a turn before the first one came back";
  }
  EXPECT_LT(ended[1].queue_us, 100);
  EXPECT_GT(ended[2].queue_us, kTokens * 1000) << "as long as the first one ran";
}

TEST_F(EngineLoopTest, ARequestThatIsCancelledTellsWhatItTookUntilThen) {
  front_.commands = {Submit(1)};
  Steps(5);
  ASSERT_TRUE(scheduler_->Preempt(1).ok());
  clock_.now_us += 50000;
  front_.commands = {CancelCommand{1}};
  Steps(1);
  ASSERT_EQ(Ended(), 1u);
  const RequestCost& cost = front_.events.back().ends[0].cost;
  EXPECT_EQ(cost.preemptions, 1);
  EXPECT_LT(cost.prefill_us, 1000) << "the first token came long before";
  // Before anything of it was computed.
  front_.behind = true;
  front_.commands = {Submit(2)};
  Steps(1);
  clock_.now_us += 3000;
  front_.commands = {CancelCommand{2}};
  Steps(1);
  const RequestCost& waited = front_.events.back().ends[0].cost;
  EXPECT_GT(waited.queue_us, 3000);
  EXPECT_EQ(waited.prefill_us, 0);
}

TEST_F(EngineLoopTest, APreemptionIsToldWithTheNextTokenAndChangesNoTimes) {
  front_.commands = {Submit(1)};
  Steps(5);
  ASSERT_TRUE(scheduler_->Preempt(1).ok());
  clock_.now_us += 700000;
  StepsUntilEnded(1);
  const std::vector<RequestCost> told = Told()[1];
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].preemptions, 0);
  EXPECT_EQ(told[1].preemptions, 1);
  EXPECT_EQ(told[1].queue_us, told[0].queue_us);
  EXPECT_EQ(told[1].prefill_us, told[0].prefill_us);
  // After it was admitted again.
  const RequestCost& ended = front_.events.back().ends[0].cost;
  EXPECT_EQ(ended.queue_us, told[0].queue_us);
  EXPECT_EQ(ended.prefill_us, told[0].prefill_us);
}

TEST_F(EngineLoopTest, TellsHowFarPromptsAreFourTimesASecondToThoseWhoAsk) {
  SchedulerOptions options = RoomFor(2);
  options.prefill_chunk = options.max_num_batched_tokens = 8;
  Begin(options);
  SubmitCommand asking = Submit(1), silent = Submit(2);
  asking.spec.prompt.assign(800, 1);
  asking.reports_progress = true;
  silent.spec.prompt.assign(100, 1);
  front_.commands = {asking, silent};
  StepsUntilEnded(2, 20000);
  std::vector<PromptProgress> progress;
  for (const RequestEvents& events : front_.events) {
    progress.insert(progress.end(), events.prompts.begin(), events.prompts.end());
    EXPECT_TRUE(events.prompts.empty() || events.at_us > 0);
  }
  ASSERT_GE(progress.size(), 7u) << "a hundred chunks in two seconds";
  ASSERT_LE(progress.size(), 9u);
  EXPECT_EQ(progress[0].processed, 8);
  for (size_t i = 0; i < progress.size(); ++i) {
    EXPECT_EQ(progress[i].request, 1u);
    EXPECT_EQ(progress[i].total, 800);
    EXPECT_GT(progress[i].processed, i > 0 ? progress[i - 1].processed : 0);
  }
}

TEST_F(EngineLoopTest, TakesNoCommandAfterTheShutdownAndNumbersItsLastFrameOnwards) {
  front_.commands = {Submit(1), ShutdownCommand(), Submit(2)};
  Steps(1);
  EXPECT_TRUE(engine_->shutting_down());
  EXPECT_EQ(front_.commands.size(), 1u);
  const uint64_t submitted = pipeline_.submitted();
  ASSERT_TRUE(engine_->ShutDownStages().ok());
  EXPECT_EQ(pipeline_.submitted(), submitted + 1);
  EXPECT_EQ(pipeline_.last_number(), submitted);
}

}  // namespace
}  // namespace stagecoach
