// Sessions with an engine that the test itself plays.

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "coordinator/channel/engine_channel.h"
#include "coordinator/session/session.h"
#include "gtest/gtest.h"

// How often this program called them; they take the place of libc's, also before main.
static std::atomic<int> g_polls, g_recvs, g_sends, g_reads;

template <typename Function>
static Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

extern "C" int poll(pollfd* descriptors, nfds_t count, int timeout) {
  ++g_polls;
  return Real<decltype(poll)>("poll")(descriptors, count, timeout);
}
extern "C" ssize_t recv(int descriptor, void* buffer, size_t size, int flags) {
  ++g_recvs;
  return Real<decltype(recv)>("recv")(descriptor, buffer, size, flags);
}
extern "C" ssize_t send(int descriptor, const void* buffer, size_t size, int flags) {
  ++g_sends;
  return Real<decltype(send)>("send")(descriptor, buffer, size, flags);
}
extern "C" ssize_t read(int descriptor, void* buffer, size_t size) {
  ++g_reads;
  return Real<decltype(read)>("read")(descriptor, buffer, size);
}

namespace stagecoach {
namespace {

struct JoinedSession : ::testing::Test {
  JoinedSession() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pb::ConfigureJob job;
    job.set_model_path("m");
    session_ = Session::Join(ends[0], job);
    engine_ = std::make_unique<EngineChannel>(ends[1]);
  }

  void BeReady(int context, int blocks, int block_tokens) {
    pb::EngineMessage message;
    message.mutable_ready()->set_context(context);
    message.mutable_ready()->set_blocks(blocks);
    message.mutable_ready()->set_block_tokens(block_tokens);
    ASSERT_TRUE(engine_->Send(message).ok());
    while (session_->ready() == nullptr) ASSERT_TRUE(session_->Next(absl::Seconds(1)).ok());
  }

  // Under the first id that the session takes.
  RequestId Submit(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    GenerationRequest request = {.prompt = std::move(prompt), .max_new_tokens = max_new_tokens};
    RequestId id = 1;
    absl::Status status;
    while (absl::IsInvalidArgument(status = session_->Submit(id, request))) ++id;
    EXPECT_TRUE(status.ok()) << status;
    return id;
  }

  std::unique_ptr<Session> session_;
  std::unique_ptr<EngineChannel> engine_;
};

// An engine that does not read: the front's memory holds a request once, in its journal.
TEST_F(JoinedSession, SubmissionsWaitInTheFrontWhileTheEngineIsBehind) {
  BeReady(1 << 30, 1 << 20, 1024);
  const std::vector<TokenId> prompt(1 << 18, 1 << 27);  // 1 MiB on the wire
  std::vector<RequestId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(Submit(prompt, 1));
  // The first one went to the engine, who must answer; the last one has not left the front.
  session_->Cancel(ids.front());
  session_->Cancel(ids.back());
  const auto event = session_->Next(absl::ZeroDuration()).value().value();
  EXPECT_EQ(event.request, ids.back());
  EXPECT_EQ(event.finished->reason(), pb::RequestFinished::REASON_CANCELLED);
  EXPECT_FALSE(session_->Next(absl::ZeroDuration())->has_value());

  // Sixteen were queued, with the word that the first is cancelled behind them; the rest follows as the engine reads.
  std::vector<RequestId> submitted;
  size_t before_cancel = 0;
  while (submitted.size() < 39) {
    const auto received = engine_->Receive().value();
    if (!received.has_value()) {
      ASSERT_TRUE(session_->Next(absl::ZeroDuration()).ok());
    } else if (received->has_cancel()) {
      before_cancel = submitted.size();
    } else if (received->has_submit()) {
      submitted.push_back(received->submit().request());
    }
  }
  ids.pop_back();
  EXPECT_EQ(submitted, ids);
  EXPECT_GE(before_cancel, 16u);
  EXPECT_LE(before_cancel, 18u);
}

TEST_F(JoinedSession, SpeaksTheSameProtocolAndTakesALossAsFinal) {
  const auto receive = [&] {
    absl::StatusOr<std::optional<pb::EngineMessage>> message = engine_->Receive();
    EXPECT_TRUE(message.ok() && message->has_value());
    return message.ok() && message->has_value() ? **message : pb::EngineMessage();
  };
  EXPECT_EQ(receive().configure().model_path(), "m");
  const RequestId id = Submit({1, 2}, 3);
  BeReady(100, 10, 32);
  pb::EngineMessage message;
  EXPECT_EQ(receive().submit().request(), id);
  pb::TokenDelta* delta = message.mutable_events()->add_tokens();
  delta->set_request(id);
  delta->add_tokens()->set_position(2);
  ASSERT_TRUE(engine_->Send(message).ok());
  engine_.reset();
  EXPECT_EQ(session_->Next(absl::Seconds(10)).value().value().tokens.size(), 1u);
  EXPECT_EQ(session_->Next(absl::Seconds(10)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(JoinedSession, AWakeUpCostsOnePollAndOneReadHoweverManyEventsItBrings) {
  BeReady(1000, 40, 32);
  pb::EngineMessage message;
  std::vector<RequestId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(Submit({1}, 100));
  for (int position = 1; position <= 20; ++position) {
    message.clear_body();
    for (const RequestId id : ids) {
      pb::TokenDelta* delta = message.mutable_events()->add_tokens();
      delta->set_request(id);
      delta->add_tokens()->set_position(position);
    }
    ASSERT_TRUE(engine_->Send(message).ok());
    const int polls = g_polls, recvs = g_recvs, others = g_sends + g_reads;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(session_->Next(absl::Seconds(10)).value().value().request, ids[i]);
    }
    ASSERT_EQ(g_polls - polls, 1);
    ASSERT_EQ(g_recvs - recvs, 1);
    ASSERT_EQ(g_sends + g_reads - others, 0);
  }
}

}  // namespace
}  // namespace stagecoach
