// Sessions with an engine that the test itself plays.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "coordinator/channel/engine_channel.h"
#include "coordinator/front/session.h"

namespace stagecoach {
namespace {

GenerationRequest Request(std::vector<TokenId> prompt, int64_t max_new_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  return request;
}

// An engine that does not read: the front's memory holds a request once, in its journal.
TEST(JoinedSession, SubmissionsWaitInTheFrontWhileTheEngineIsBehind) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::unique_ptr<Session> session = Session::Join(ends[0], pb::ConfigureJob());
  EngineChannel engine(ends[1]);
  pb::EngineMessage message;
  message.mutable_ready()->set_context(1 << 30);
  ASSERT_TRUE(engine.Send(message).ok());
  while (session->ready() == nullptr) ASSERT_TRUE(session->Next(absl::Seconds(1)).ok());
  const std::vector<TokenId> prompt(1 << 20, 1);  // 1 MiB on the wire
  std::vector<RequestId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(session->Submit(Request(prompt, 1)));
  // The first one went to the engine, who must answer; the last one has not left the front.
  session->Cancel(ids.front());
  session->Cancel(ids.back());
  const auto event = session->Next(absl::ZeroDuration());
  ASSERT_TRUE(event.ok() && event->has_value()) << event.status();
  EXPECT_EQ((*event)->request, ids.back());
  EXPECT_EQ((*event)->finished->reason(), pb::RequestFinished::REASON_CANCELLED);
  EXPECT_FALSE(session->Next(absl::ZeroDuration())->has_value());

  // Sixteen were queued, with the word that the first is cancelled behind them; the rest follows as the engine reads.
  std::vector<RequestId> submitted;
  size_t before_cancel = 0;
  while (submitted.size() < 39) {
    const auto received = engine.Receive();
    ASSERT_TRUE(received.ok()) << received.status();
    if (!received->has_value()) {
      ASSERT_TRUE(session->Next(absl::ZeroDuration()).ok());
    } else if ((*received)->has_cancel()) {
      before_cancel = submitted.size();
    } else if ((*received)->has_submit()) {
      submitted.push_back((*received)->submit().request());
    }
  }
  ids.pop_back();
  EXPECT_EQ(submitted, ids);
  EXPECT_GE(before_cancel, 16u);
  EXPECT_LE(before_cancel, 18u);
}

TEST(JoinedSession, SpeaksTheSameProtocolAndTakesALossAsFinal) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pb::ConfigureJob job;
  job.set_model_path("m");
  std::unique_ptr<Session> session = Session::Join(ends[0], job);
  auto engine = std::make_unique<EngineChannel>(ends[1]);
  const auto receive = [&] {
    absl::StatusOr<std::optional<pb::EngineMessage>> message = engine->Receive();
    EXPECT_TRUE(message.ok() && message->has_value());
    return message.ok() && message->has_value() ? **message : pb::EngineMessage();
  };
  EXPECT_EQ(receive().configure().model_path(), "m");
  const RequestId id = session->Submit(Request({1, 2}, 3));
  pb::EngineMessage message;
  message.mutable_ready()->set_context(100);
  ASSERT_TRUE(engine->Send(message).ok());
  EXPECT_TRUE(session->Next(absl::Seconds(10)).ok());
  EXPECT_EQ(receive().submit().request(), id);
  message.mutable_tokens()->set_request(id);
  message.mutable_tokens()->add_tokens()->set_position(2);
  ASSERT_TRUE(engine->Send(message).ok());
  engine.reset();
  const auto event = session->Next(absl::Seconds(10));
  ASSERT_TRUE(event.ok() && event->has_value()) << event.status();
  EXPECT_EQ((*event)->tokens.size(), 1u);
  EXPECT_EQ(session->Next(absl::Seconds(10)).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace stagecoach
