#include "coordinator/session/session_thread.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/scripted/scripted_engine.h"

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;

constexpr int kContext = 100000;

GenerationRequest Wanted(int64_t prompt_tokens, int64_t max_new_tokens) {
  GenerationRequest request;
  request.prompt.assign(static_cast<size_t>(prompt_tokens), 1);
  request.max_new_tokens = max_new_tokens;
  return request;
}

struct Outcome {
  std::vector<TokenId> tokens;
  int ends = 0;
  Finished::Reason reason = Finished::REASON_UNSPECIFIED;
  std::string error;
  Finished::Code code = Finished::CODE_UNSPECIFIED;
  int64_t processed = 0;
};

class Collector : public SessionListener {
 public:
  void OnEvents(std::vector<SessionEvent> events) override {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const SessionEvent& event : events) {
      tokens_ += SessionThread::TokensIn(event);
      Outcome& outcome = outcomes_[event.request];
      EXPECT_EQ(outcome.ends, 0) << "request " << event.request << " goes on after its end";
      for (const SampledToken& token : event.tokens) outcome.tokens.push_back(token.token);
      if (event.prefill.has_value()) {
        EXPECT_EQ(event.prefill->request(), event.request);
        outcome.processed = event.prefill->processed();
      }
      if (!event.finished.has_value()) continue;
      EXPECT_EQ(event.finished->request(), event.request);
      ++outcome.ends;
      ++ended_;
      outcome.reason = event.finished->reason();
      outcome.error = event.finished->error();
      outcome.code = event.finished->code();
    }
    changed_.notify_all();
  }
  void OnTurn() override {
    ++turns;
    if (on_turn) on_turn();
  }

  template <typename Condition>
  void Await(Condition condition) {
    std::unique_lock<std::mutex> lock(mu_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return condition(*this); }));
  }
  Outcome Of(RequestId id) {
    const std::lock_guard<std::mutex> lock(mu_);
    return outcomes_[id];
  }
  int64_t tokens() {
    const std::lock_guard<std::mutex> lock(mu_);
    return tokens_;
  }

  std::atomic<int> turns{0};
  std::function<void()> on_turn;  // set before Run
  // For conditions of Await.
  std::map<RequestId, Outcome> outcomes_;
  size_t ended_ = 0;
  int64_t tokens_ = 0;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
};

struct SessionThreadTest : ::testing::Test {
  ~SessionThreadTest() override {
    if (!runner_.joinable()) return;
    face_->Stop();
    runner_.join();
  }

  // Before an engine that answers every request with tokens 1, 2, 3, ...
  void Start() {
    testing::ScriptedEngineOptions options;
    options.script = [](const pb::SubmitRequest& submit) {
      testing::ScriptedAnswer answer;
      answer.tokens.resize(static_cast<size_t>(submit.max_new_tokens()));
      std::iota(answer.tokens.begin(), answer.tokens.end(), 1);
      return answer;
    };
    options.context = options.blocks = kContext;
    options.max_running = 1000;
    options.ready = false;
    face_ = std::make_unique<SessionThread>(JoinScriptedEngine(std::move(options), &engine_), &collector_);
    runner_ = std::thread([this] { result_ = face_->Run(); });
  }

  template <typename Condition>
  static void AwaitTrue(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void AwaitState(SessionStatus::State state) {
    AwaitTrue([&] { return face_->Status()->state == state; });
  }

  absl::Status Join() {
    runner_.join();
    return result_;
  }

  void ExpectWhole(RequestId id, int64_t tokens) {
    const Outcome outcome = collector_.Of(id);
    EXPECT_EQ(outcome.reason, Finished::REASON_LENGTH) << id << " " << outcome.error;
    ASSERT_EQ(static_cast<int64_t>(outcome.tokens.size()), tokens) << id;
    for (int64_t i = 0; i < tokens; ++i) ASSERT_EQ(outcome.tokens[i], i + 1) << id;
  }

  // Under the next id; for several threads.
  absl::Status SubmitNext(GenerationRequest request) {
    const std::lock_guard<std::mutex> lock(mu_);
    const RequestId id = ++last_id_;
    wanted_[id] = request.max_new_tokens;
    return face_->Submit(id, std::move(request));
  }

  std::mutex mu_;
  RequestId last_id_ = 0;
  std::map<RequestId, int64_t> wanted_;  // of SubmitNext: how many tokens
  Collector collector_;
  std::unique_ptr<testing::ScriptedEngine> engine_;
  std::unique_ptr<SessionThread> face_;
  std::thread runner_;
  absl::Status result_;
};

TEST_F(SessionThreadTest, ManyThreadsSubmitAndEachGetsItsAnswer) {
  constexpr int kThreads = 8, kEach = 50, kTokens = 20;
  Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kEach; ++i) {
        GenerationRequest request = Wanted(3, kTokens + t);
        request.priority_class = kPriorityClasses[t % 3].value;
        const absl::Status taken = SubmitNext(std::move(request));
        EXPECT_TRUE(taken.ok()) << taken;
        if (i == kEach / 2) engine_->BeReady();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.ended_, static_cast<size_t>(kThreads * kEach));
  for (const auto& [id, tokens] : wanted_) ExpectWhole(id, tokens);
  const std::shared_ptr<const SessionStatus> status = face_->Status();
  EXPECT_EQ(status->state, SessionStatus::State::kEnded);
  EXPECT_EQ(status->unfinished, 0);
  EXPECT_THAT(status->unfinished_by_class, ::testing::Each(0));
  EXPECT_EQ(status->statistics.decode_rows(), static_cast<uint64_t>(engine_->sent()));
}

TEST_F(SessionThreadTest, RefusesWhatTheJobCannotHoldAndIdsThatDoNotGrow) {
  Start();
  ASSERT_TRUE(face_->Submit(7, Wanted(3, kContext - 10)).ok());
  for (const RequestId id : {7, 6}) {
    EXPECT_EQ(face_->Submit(id, Wanted(3, 5)).code(), absl::StatusCode::kInvalidArgument) << id;
  }
  engine_->BeReady();
  AwaitState(SessionStatus::State::kReady);
  EXPECT_EQ(face_->Submit(8, Wanted(kContext + 1, 5)).code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(face_->Submit(8, Wanted(3, 5)).ok());
  face_->Cancel(7);
  collector_.Await([](const Collector& c) { return c.ended_ == 2; });
  EXPECT_EQ(face_->Submit(7, Wanted(3, 5)).code(), absl::StatusCode::kInvalidArgument) << "it has ended";
  ASSERT_TRUE(face_->Submit(9, Wanted(3, 5)).ok());
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(face_->Submit(10, Wanted(3, 5)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(collector_.outcomes_.size(), 3u);
}

TEST_F(SessionThreadTest, CancelsWhileTokensStreamAndRightAfterTheSubmit) {
  Start();
  engine_->BeReady();
  ASSERT_TRUE(face_->Submit(1, Wanted(3, kContext - 10)).ok());
  ASSERT_TRUE(face_->Submit(2, Wanted(3, 200)).ok());
  collector_.Await([](const Collector& c) { return c.tokens_ > 50; });
  face_->Cancel(1);
  ASSERT_TRUE(face_->Submit(3, Wanted(3, kContext - 10)).ok());
  face_->Cancel(3);
  face_->Cancel(4);  // nobody
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.Of(1).reason, Finished::REASON_CANCELLED);
  EXPECT_EQ(collector_.Of(3).reason, Finished::REASON_CANCELLED);
  ExpectWhole(2, 200);
}

TEST_F(SessionThreadTest, ProgressOfAPromptComesUnderTheCallersId) {
  Start();
  engine_->BeReady();
  GenerationRequest request = Wanted(50, 20);
  request.report_progress = true;
  ASSERT_TRUE(face_->Submit(60, Wanted(50, 20)).ok());
  ASSERT_TRUE(face_->Submit(70, request).ok());
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.Of(70).processed, 49);
  EXPECT_EQ(collector_.Of(60).processed, 0);
}

TEST_F(SessionThreadTest, WhenTheSessionEndsWhileThreadsSubmitEveryRequestThatWasTakenHearsOfIt) {
  Start();
  engine_->BeReady();
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  std::vector<absl::StatusCode> refusals;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const absl::Status status = SubmitNext(Wanted(3, kContext - 10));
        if (!status.ok()) {
          const std::lock_guard<std::mutex> lock(mu_);
          refusals.push_back(status.code());
          return;
        }
        if (++taken == 100) engine_->GoAway();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Join().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refusals, std::vector<absl::StatusCode>(4, absl::StatusCode::kUnavailable));
  EXPECT_EQ(collector_.ended_, static_cast<size_t>(taken.load()));
  for (const auto& [id, outcome] : collector_.outcomes_) {
    EXPECT_EQ(outcome.ends, 1) << id;
    EXPECT_EQ(outcome.reason, Finished::REASON_FAILED) << id;
    EXPECT_FALSE(outcome.error.empty()) << id;
    EXPECT_EQ(outcome.code, Finished::CODE_STAGES_LOST) << id;
  }
}

TEST_F(SessionThreadTest, AWakeUpDuringATurnGetsTheNextOneAtOnce) {
  constexpr int kTurns = 20;
  collector_.on_turn = [this] {
    if (collector_.turns < kTurns) face_->Wake();
  };
  const int64_t start_us = MonotonicUs();
  Start();
  face_->Wake();
  AwaitTrue([this] { return collector_.turns >= kTurns; });
  // Turns that wait for their time take a second each.
  EXPECT_LT(MonotonicUs() - start_us, kTurns * 500'000);
}

TEST_F(SessionThreadTest, StopEndsWhatRunsAndWhatWaitsForAJob) {
  Start();
  for (RequestId id = 1; id <= 5; ++id) ASSERT_TRUE(face_->Submit(id, Wanted(3, 100)).ok());
  face_->Stop();
  EXPECT_EQ(Join().code(), absl::StatusCode::kCancelled);
  for (RequestId id = 1; id <= 5; ++id) {
    EXPECT_EQ(collector_.Of(id).reason, Finished::REASON_FAILED);
    EXPECT_EQ(collector_.Of(id).code, Finished::CODE_STOPPED);
  }
  EXPECT_EQ(face_->Submit(6, Wanted(3, 5)).code(), absl::StatusCode::kCancelled);
}

TEST_F(SessionThreadTest, ReadsNoFurtherThanItsListenerConsumesAndLosesNothing) {
  constexpr int64_t kTokens = testing::kSanitized ? 30000 : 90000, kRequests = 6;  // more than twice the high mark
  Start();
  engine_->BeReady();
  for (RequestId id = 1; id < kRequests; ++id) ASSERT_TRUE(face_->Submit(id, Wanted(3, kTokens)).ok());
  ASSERT_TRUE(face_->Submit(kRequests, Wanted(3, kContext - 10)).ok());  // goes on until it is cancelled
  collector_.Await([](const Collector& c) { return c.tokens_ >= SessionThread::kHighTokens; });
  // Now nothing is read, however many turns are made and although more is there; and it still hears what it is told.
  face_->Cancel(kRequests);
  const int turns = collector_.turns;
  AwaitTrue([&] {
    face_->Wake();
    return collector_.turns >= turns + 20;
  });
  constexpr int64_t kOneRead = 64 << 10;  // bytes, of which a token takes several
  EXPECT_LT(collector_.tokens(), SessionThread::kHighTokens + kOneRead / 4);
  const int64_t held = collector_.tokens();
  // Above the low mark it stays so.
  face_->Consumed(held - SessionThread::kLowTokens);
  for (int i = 0; i < 20; ++i) {
    const int before = collector_.turns;
    face_->Wake();
    AwaitTrue([&] { return collector_.turns > before; });
  }
  EXPECT_EQ(collector_.tokens(), held);
  int64_t consumed = held - SessionThread::kLowTokens;
  face_->Drain();
  AwaitTrue([&] {
    const int64_t tokens = collector_.tokens();
    face_->Consumed(tokens - consumed);
    consumed = tokens;
    return face_->Status()->state == SessionStatus::State::kEnded;
  });
  EXPECT_EQ(Join(), absl::OkStatus());
  for (RequestId id = 1; id < kRequests; ++id) ExpectWhole(id, kTokens);
  EXPECT_EQ(collector_.Of(kRequests).reason, Finished::REASON_CANCELLED);
}

}  // namespace
}  // namespace stagecoach
