#ifndef STAGECOACH_COORDINATOR_CLI_CHAT_CLUSTER_H_
#define STAGECOACH_COORDINATOR_CLI_CHAT_CLUSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/cli/chat/chat_backend.h"
#include "coordinator/cli/chat_settings.h"
#include "coordinator/front/cluster_run.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/parsed_completion.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/output/output_format.h"

namespace stagecoach {

// Answers by a cluster of this process's own. A lost job costs an answer only time.
class ChatCluster : public ChatBackend {
 public:
  // All that is pointed to outlives this. An answer also ends before one of `stops`. `format` is usable without tools.
  ChatCluster(ClusterRun* cluster, const FrontModel* model, ChatFormat format, ChatSettings settings,
              std::vector<std::string> stops);

  absl::Status Prepare() override;
  absl::StatusOr<Awaited> AwaitInput(int descriptor) override;
  absl::StatusOr<ChatAnswer> Answer(const ChatTurn& turn, const TakeText& take) override;
  absl::Status Set(absl::string_view name, absl::string_view value) override;
  std::string Settings() const override { return ChatSettingsText(settings_, sampling_); }
  bool AlwaysAnswersAlike() const override { return sampling_.temperature == 0; }
  std::string Name() const override { return model_->DisplayName(); }
  int64_t context_tokens() const override;
  std::string Describe() const override;

 private:
  absl::Status Stream(RequestId id, int64_t begun_us, const TakeText& take, ParsedCompletion* completion,
                      ChatAnswer* answer);
  void Resolve();

  ClusterRun* const cluster_;
  const FrontModel* const model_;
  const ChatFormat format_;
  const OutputFormat output_format_;
  const std::vector<std::string> stops_;
  const ChatSettings given_;
  ChatSettings settings_;
  SamplingParams sampling_;  // what settings_ and the model file say
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_CHAT_CLUSTER_H_
