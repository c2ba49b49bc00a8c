// SessionThread over a session with an engine that a thread of the test plays.

#include "coordinator/front/session_thread.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/channel/engine_channel.h"
#include "tests/testing/sanitizers.h"

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

// Answers every request with tokens 1, 2, 3, ... in turn, `burst` at a time. Stops while much is unread, as engines do.
class PlayedEngine {
 public:
  PlayedEngine(int descriptor, int burst) : channel_(descriptor), burst_(burst), thread_([this] { Run(); }) {}
  ~PlayedEngine() {
    leave_ = true;
    thread_.join();
  }
  void BeReady() { ready_ = true; }
  void GoAway() { leave_ = true; }
  int64_t sent() const { return sent_; }

 private:
  struct Running {
    uint64_t request;
    int64_t prompt, wanted, produced = 0;
  };

  void Run() {
    while (!leave_) {
      if (ready_ && !told_ready_) SayReady();
      for (auto message = channel_.Receive(); message.ok() && message->has_value(); message = channel_.Receive()) {
        Handle(**message);
      }
      if (!running_.empty() && channel_.pending_bytes() < (1 << 20)) {
        Produce();
        continue;
      }
      pollfd wait = {channel_.descriptor(), POLLIN, 0};
      poll(&wait, 1, 1);
    }
    shutdown(channel_.descriptor(), SHUT_RDWR);
  }

  // An answer to being watched: the preemptions say how often.
  void SayStatus(bool often) {
    pb::EngineMessage out;
    out.mutable_status()->mutable_statistics()->set_preemptions(often ? 10 : 1);
    channel_.Send(out).IgnoreError();
  }

  // A word of progress for who wants it.
  void SayProgress(const pb::SubmitRequest& submit) {
    pb::EngineMessage out;
    pb::PrefillProgress* progress = out.mutable_events()->add_prefills();
    progress->set_request(submit.request());
    progress->set_processed(submit.prompt_size() - 1);
    progress->set_total(submit.prompt_size());
    channel_.Send(out).IgnoreError();
  }

  void SayReady() {
    told_ready_ = true;
    pb::EngineMessage out;
    out.mutable_ready()->set_context(kContext);
    out.mutable_ready()->set_blocks(kContext);
    out.mutable_ready()->set_block_tokens(16);
    channel_.Send(out).IgnoreError();
  }

  void Handle(const pb::EngineMessage& message) {
    if (message.has_submit()) {
      if (message.submit().report_progress()) SayProgress(message.submit());
      running_.push_back(
          {message.submit().request(), message.submit().prompt_size(), message.submit().max_new_tokens()});
    }
    if (message.has_watch()) SayStatus(message.watch().often());
    if (message.has_cancel()) {
      const auto is_it = [&](const Running& running) { return running.request == message.cancel().request(); };
      if (std::erase_if(running_, is_it) > 0) End(message.cancel().request(), Finished::REASON_CANCELLED);
    }
    if (message.has_shutdown()) {
      pb::EngineMessage out;
      out.mutable_status()->mutable_statistics()->add_stages();
      out.mutable_status()->mutable_statistics()->set_decode_rows(static_cast<uint64_t>(sent_));
      out.mutable_status()->set_ended(true);
      channel_.Send(out).IgnoreError();
    }
  }

  void Produce() {
    Running running = running_.front();
    running_.pop_front();
    pb::EngineMessage out;
    pb::TokenDelta* delta = out.mutable_events()->add_tokens();
    delta->set_request(running.request);
    for (int i = 0; i < burst_ && running.produced < running.wanted; ++i) {
      pb::SampledToken* token = delta->add_tokens();
      token->set_position(static_cast<int32_t>(running.prompt + running.produced));
      token->set_token(static_cast<int32_t>(++running.produced));
      ++sent_;
    }
    channel_.Send(out).IgnoreError();
    if (running.produced < running.wanted) {
      running_.push_back(running);
    } else {
      End(running.request, Finished::REASON_LENGTH);
    }
  }

  void End(uint64_t request, Finished::Reason reason) {
    pb::EngineMessage out;
    pb::RequestFinished* finished = out.mutable_events()->add_finished();
    finished->set_request(request);
    finished->set_reason(reason);
    channel_.Send(out).IgnoreError();
  }

  EngineChannel channel_;
  const int burst_;
  std::deque<Running> running_;
  bool told_ready_ = false;
  std::atomic<bool> ready_{false}, leave_{false};
  std::atomic<int64_t> sent_{0};
  std::thread thread_;
};

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

class SessionThreadTest : public ::testing::Test {
 protected:
  ~SessionThreadTest() override {
    if (!runner_.joinable()) return;
    face_->Stop();
    runner_.join();
  }

  void Start(int burst = 1) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    engine_ = std::make_unique<PlayedEngine>(ends[1], burst);
    pb::ConfigureJob job;
    job.set_stage_timeout_s(60);
    face_ = std::make_unique<SessionThread>(Session::Join(ends[0], job), &collector_);
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

  Collector collector_;
  std::unique_ptr<PlayedEngine> engine_;
  std::unique_ptr<SessionThread> face_;
  std::thread runner_;
  absl::Status result_;
};

TEST_F(SessionThreadTest, ManyThreadsSubmitUnderIdsOfTheirOwnInAnyOrderAndEachGetsItsAnswer) {
  constexpr int kThreads = 8, kEach = 50, kTokens = 20;
  Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = kEach - 1; i >= 0; --i) {  // downwards
        GenerationRequest request = Wanted(3, kTokens + t);
        request.priority_class = kPriorityClasses[t % 3].value;
        const absl::Status taken = face_->Submit(static_cast<RequestId>(t + kThreads * i + 1), std::move(request));
        EXPECT_TRUE(taken.ok()) << taken;
        if (i == kEach / 2) engine_->BeReady();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.ended_, static_cast<size_t>(kThreads * kEach));
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) ExpectWhole(static_cast<RequestId>(t + kThreads * i + 1), kTokens + t);
  }
  const std::shared_ptr<const SessionStatus> status = face_->Status();
  EXPECT_EQ(status->state, SessionStatus::State::kEnded);
  EXPECT_EQ(status->unfinished, 0);
  EXPECT_THAT(status->unfinished_by_class, ::testing::Each(0));
  EXPECT_EQ(status->statistics.decode_rows(), static_cast<uint64_t>(engine_->sent()));
}

TEST_F(SessionThreadTest, RefusesWhatTheJobCannotHoldAndIdsInUse) {
  Start();
  ASSERT_TRUE(face_->Submit(7, Wanted(3, kContext - 10)).ok());
  EXPECT_EQ(face_->Submit(7, Wanted(3, 5)).code(), absl::StatusCode::kInvalidArgument);
  engine_->BeReady();
  AwaitState(SessionStatus::State::kReady);
  EXPECT_EQ(face_->Submit(8, Wanted(kContext + 1, 5)).code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(face_->Submit(8, Wanted(3, 5)).ok());
  face_->Cancel(7);
  collector_.Await([](const Collector& c) { return c.ended_ == 2; });
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

TEST_F(SessionThreadTest, ARequestEndsAtItsDeadlineWithWhatItHasWhetherItRunsOrWaitsForAJob) {
  Start();
  GenerationRequest soon = Wanted(3, kContext - 10), later = Wanted(3, kContext - 10), never = Wanted(3, 20);
  soon.deadline_us = MonotonicUs() + 50000;
  never.deadline_us = MonotonicUs() + 600000000;
  ASSERT_TRUE(face_->Submit(7, soon).ok());  // no job is there
  ASSERT_TRUE(face_->Submit(8, never).ok());
  collector_.Await([](const Collector& c) { return c.ended_ == 1; });
  EXPECT_GE(MonotonicUs(), soon.deadline_us);
  EXPECT_LT(MonotonicUs(), soon.deadline_us + 900000) << "the deadline alone did not wake it";
  EXPECT_EQ(collector_.Of(7).reason, Finished::REASON_CANCELLED);
  EXPECT_EQ(collector_.Of(7).code, Finished::CODE_DEADLINE);
  engine_->BeReady();
  AwaitState(SessionStatus::State::kReady);
  later.deadline_us = MonotonicUs() + 100000;
  ASSERT_TRUE(face_->Submit(9, later).ok());
  ASSERT_TRUE(face_->Submit(10, Wanted(3, kContext - 10)).ok());
  collector_.Await([](const Collector& c) { return c.outcomes_.count(9) > 0 && c.outcomes_.at(9).ends == 1; });
  EXPECT_EQ(collector_.Of(9).code, Finished::CODE_DEADLINE);
  EXPECT_FALSE(collector_.Of(9).tokens.empty());
  face_->Cancel(10);
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.Of(10).code, Finished::CODE_UNSPECIFIED) << "cancelled by its caller";
  ExpectWhole(8, 20);
}

TEST_F(SessionThreadTest, ProgressOfAPromptComesUnderTheCallersId) {
  Start();
  engine_->BeReady();
  GenerationRequest request = Wanted(50, 20);
  request.report_progress = true;
  ASSERT_TRUE(face_->Submit(70, request).ok());
  ASSERT_TRUE(face_->Submit(60, Wanted(50, 20)).ok());
  face_->Drain();
  EXPECT_EQ(Join(), absl::OkStatus());
  EXPECT_EQ(collector_.Of(70).processed, 49);
  EXPECT_EQ(collector_.Of(60).processed, 0);
}

TEST_F(SessionThreadTest, TheEngineIsToldToBeWatchedAsSoonAsThereIsOneAndItsStatusIsSeenAtOnce) {
  Start();
  face_->Watch(true);
  engine_->BeReady();
  const int64_t start_us = MonotonicUs();
  const auto preemptions = [&] { return face_->Status()->statistics.preemptions(); };
  AwaitTrue([&] { return preemptions() == 10 || MonotonicUs() > start_us + 60000000; });
  EXPECT_EQ(preemptions(), 10u);
  EXPECT_TRUE(face_->Status()->job_ready);
  face_->Watch(true);
  face_->Watch(false);
  AwaitTrue([&] { return preemptions() == 1 || MonotonicUs() > start_us + 120000000; });
  EXPECT_EQ(preemptions(), 1u);
}

TEST_F(SessionThreadTest, WhenTheSessionEndsWhileThreadsSubmitEveryRequestThatWasTakenHearsOfIt) {
  Start();
  engine_->BeReady();
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  std::mutex mu;
  std::vector<absl::StatusCode> refusals;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (RequestId i = 0;; ++i) {
        const absl::Status status = face_->Submit(4 * i + static_cast<RequestId>(t) + 1, Wanted(3, kContext - 10));
        if (!status.ok()) {
          const std::lock_guard<std::mutex> lock(mu);
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
  constexpr int kBurst = 64;
  constexpr int64_t kTokens = testing::kSanitized ? 30000 : 90000, kRequests = 6;  // more than twice the high mark
  Start(kBurst);
  engine_->BeReady();
  for (RequestId id = 1; id <= kRequests; ++id) ASSERT_TRUE(face_->Submit(id, Wanted(3, kTokens)).ok());
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
