#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_BENCH_FAKE_ENGINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_BENCH_FAKE_ENGINE_H_

// An engine that a test plays behind a real ClusterRun: what it says, and when, is the test's.

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "coordinator/channel/engine_channel.h"
#include "coordinator/session/cluster_run.h"
#include "gtest/gtest.h"

namespace stagecoach {

class FakeEngine {
 public:
  FakeEngine() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    front_ = ends[0];
    channel_ = std::make_unique<EngineChannel>(ends[1]);
  }
  ~FakeEngine() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // Its front, which takes the descriptor over. Once.
  std::unique_ptr<ClusterRun> Join() { return ClusterRun::Open(LaunchOptions(), front_, false).value(); }

  // From now on a thread is the engine: it is ready at once, with room for everything, and calls this with each message
  // of the front, then with an empty one whenever there was none for a while. The rest is for that thread alone. What
  // the call uses outlives this object.
  void Play(std::function<void(const pb::EngineMessage&)> on_message) {
    thread_ = std::thread([this, on_message = std::move(on_message)] { Run(on_message); });
  }

  void Token(RequestId request, int64_t at_us, TokenId token = 0) {
    pb::EngineMessage message;
    message.mutable_events()->set_at_us(at_us);
    pb::TokenDelta* delta = message.mutable_events()->add_tokens();
    delta->set_request(request);
    pb::SampledToken* sampled = delta->add_tokens();
    sampled->set_position(static_cast<int32_t>(tokens_[request]++));
    sampled->set_token(token);
    Send(message);
  }
  void Finish(RequestId request, pb::RequestFinished::Reason reason) {
    pb::EngineMessage message;
    pb::RequestFinished* finished = message.mutable_events()->add_finished();
    finished->set_request(request);
    finished->set_reason(reason);
    Send(message);
  }
  // Its statistics, while nothing runs, with one stage that computed for so many rows.
  void ReportRest(uint64_t prefill_rows) {
    pb::EngineMessage message;
    pb::JobStatistics* statistics = message.mutable_status()->mutable_statistics();
    statistics->add_stages();
    statistics->set_prefill_rows(prefill_rows);
    Send(message);
  }
  void Send(const pb::EngineMessage& message) { channel_->Send(message).IgnoreError(); }

 private:
  void Run(const std::function<void(const pb::EngineMessage&)>& on_message) {
    pb::EngineMessage ready;
    ready.mutable_ready()->set_context(1 << 20);
    ready.mutable_ready()->set_blocks(1 << 16);
    ready.mutable_ready()->set_block_tokens(32);
    Send(ready);
    while (!stop_) {
      absl::StatusOr<std::optional<pb::EngineMessage>> message = channel_->Receive();
      if (!message.ok()) return;  // the front is gone
      if (!message->has_value()) {
        on_message(pb::EngineMessage());
        pollfd wait = {channel_->descriptor(), POLLIN, 0};
        poll(&wait, 1, 10);
        channel_->Flush().IgnoreError();
        continue;
      }
      if ((*message)->has_submit()) tokens_[(*message)->submit().request()] = (*message)->submit().prompt_size();
      on_message(**message);
    }
  }

  int front_ = -1;
  std::unique_ptr<EngineChannel> channel_;
  std::map<RequestId, int64_t> tokens_;  // of each request, its prompt included
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_BENCH_FAKE_ENGINE_H_
