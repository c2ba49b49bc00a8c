#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SERVER_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SERVER_H_

// Answers from a server that speaks OpenAI's chat completions, ours or another's. Needs no model and no cluster here.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/chat/chat_backend.h"
#include "coordinator/cli/chat/chat_settings.h"
#include "coordinator/serve/http/http_client.h"

namespace stagecoach {

class ChatServer : public ChatBackend {
 public:
  // Settings that are not given are the server's.
  ChatServer(HttpUrl url, HttpClientOptions client, ChatSettings settings, std::vector<std::string> stops);

  absl::Status Prepare() override;  // kUnavailable: no answer, or no usable list of models
  absl::StatusOr<Awaited> AwaitInput(int descriptor) override;
  absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) override;

  absl::Status Set(absl::string_view name, absl::string_view value) override;
  std::string Settings() const override;
  bool AlwaysAnswersAlike() const override;
  std::string Name() const override { return model_; }
  int64_t context_tokens() const override { return context_tokens_; }
  std::string Describe() const override;

 private:
  std::string Body(const ChatTurn& turn) const;

  const HttpUrl url_;
  const HttpClientOptions options_;
  HttpClient client_;
  std::string model_;           // empty until Prepare: the first that the server names
  int64_t context_tokens_ = 0;  // 0: the server does not say
  const std::vector<std::string> stops_;
  const ChatSettings given_;
  ChatSettings settings_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CHAT_SERVER_H_
