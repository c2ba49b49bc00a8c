// The engine's loop alone: the stages cost nothing, the test is the front, and time goes by as the test wants.

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "tests/testing/engine/instant_pipeline.h"

namespace stagecoach {
namespace {

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
  void Pause(const WaitPolicy::Pause& pause) override { now_us += pause.sleep_us; }
  int64_t now_us = 0;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  EngineLoopTest()
      : scheduler_(RoomFor(kSequences)), engine_(&pipeline_, &scheduler_, &front_, &clock_, 1000, nullptr) {}
  void Steps(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(engine_.Step().ok());
  }
  size_t Ended() const {
    size_t ended = 0;
    for (const RequestEvents& events : front_.events) ended += events.ends.size();
    return ended;
  }

  InstantPipeline pipeline_{0};
  Scheduler scheduler_;
  RecordingFront front_;
  FakeClock clock_;
  Engine engine_;
};

TEST_F(EngineLoopTest, PublishesWhatAResultBroughtForAllRequestsAtOnce) {
  for (RequestId request = 1; request <= kSequences; ++request) front_.commands.push_back(Submit(request));
  while (Ended() < kSequences) Steps(1);
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
  while (Ended() == 0) Steps(1);
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
  EXPECT_EQ(engine_.Status().in_flight, 0);
  EXPECT_EQ(front_.events.size(), submitted);
  front_.behind = false;
  while (Ended() == 0) Steps(1);
}

TEST_F(EngineLoopTest, ReportsOnceASecondInWorkAndIdlenessWhatItDidSinceItBegan) {
  front_.commands.push_back(Submit(1));
  front_.commands.push_back(Submit(2));
  while (Ended() < 2) {
    Steps(1);
    clock_.now_us += 100000;
  }
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
  options.slo_itl_us = 1000;
  Scheduler scheduler(options);
  Engine engine(&pipeline_, &scheduler, &front_, &clock_, 1000, nullptr);
  front_.commands.push_back(Submit(1));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(engine.Step().ok());
  SubmitCommand prompt = Submit(2);
  prompt.spec.prompt.assign(400, 1);
  front_.commands.push_back(prompt);
  const uint64_t before = scheduler.counters().prefill_rows;
  ASSERT_TRUE(engine.Step().ok());
  // All of it: these steps take nothing, and would all stay in the gap. The least it would be as long as nobody knew.
  EXPECT_EQ(scheduler.counters().prefill_rows - before, 400u);
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
  EXPECT_EQ(engine_.Step().code(), absl::StatusCode::kInvalidArgument);
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
  Scheduler scheduler(options);
  Engine engine(&pipeline_, &scheduler, &front_, &clock_, 1000, nullptr);
  front_.commands = {Submit(1), Submit(2)};
  while (Ended() < 2) {
    ASSERT_TRUE(engine.Step().ok());
    clock_.now_us += 1000;
  }
  std::map<RequestId, std::vector<RequestCost>> told;
  std::map<RequestId, RequestCost> ended;
  for (const RequestEvents& events : front_.events) {
    for (const RequestDelta& delta : events.deltas) {
      if (delta.cost.has_value()) told[delta.request].push_back(*delta.cost);
    }
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
  ASSERT_TRUE(scheduler_.Preempt(1).ok());
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
  ASSERT_TRUE(scheduler_.Preempt(1).ok());
  clock_.now_us += 700000;
  while (Ended() == 0) Steps(1);
  std::vector<RequestCost> told;
  for (const RequestEvents& events : front_.events) {
    for (const RequestDelta& delta : events.deltas) {
      if (delta.cost.has_value()) told.push_back(*delta.cost);
    }
  }
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
  Scheduler scheduler(options);
  Engine engine(&pipeline_, &scheduler, &front_, &clock_, 1000, nullptr);
  SubmitCommand asking = Submit(1), silent = Submit(2);
  asking.spec.prompt.assign(800, 1);
  asking.reports_progress = true;
  silent.spec.prompt.assign(100, 1);
  front_.commands = {asking, silent};
  while (Ended() < 2) {
    ASSERT_TRUE(engine.Step().ok());
    clock_.now_us += 20000;
  }
  std::vector<PromptProgress> progress;
  std::vector<size_t> turns;
  for (size_t i = 0; i < front_.events.size(); ++i) {
    for (const PromptProgress& prompt : front_.events[i].prompts) {
      progress.push_back(prompt);
      EXPECT_GT(front_.events[i].at_us, 0);
    }
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

TEST_F(EngineLoopTest, ReportsTenTimesASecondWhileItIsWatched) {
  front_.commands = {WatchCommand{true}};
  Steps(1);
  const auto reports_of_a_second = [&] {
    const size_t before = front_.reports.size();
    for (int i = 0; i < 50; ++i) {
      clock_.now_us += 20000;
      Steps(1);
    }
    return front_.reports.size() - before;
  };
  EXPECT_NEAR(static_cast<double>(reports_of_a_second()), 10, 1);
  front_.commands = {WatchCommand{false}};
  EXPECT_LE(reports_of_a_second(), 2u);
}

TEST_F(EngineLoopTest, TakesNoCommandAfterTheShutdownAndNumbersItsLastFrameOnwards) {
  front_.commands = {Submit(1), ShutdownCommand(), Submit(2)};
  Steps(1);
  EXPECT_TRUE(engine_.shutting_down());
  EXPECT_EQ(front_.commands.size(), 1u);
  const uint64_t submitted = pipeline_.submitted();
  ASSERT_TRUE(engine_.ShutDownStages().ok());
  EXPECT_EQ(pipeline_.submitted(), submitted + 1);
  EXPECT_EQ(pipeline_.last_number(), submitted);
}

}  // namespace
}  // namespace stagecoach
