#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_H_

// What Anthropic's Messages have beside kMessagesApi. Pure, thread-safe.

#include "absl/strings/string_view.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

// POST /v1/messages/count_tokens: {"input_tokens"}, of the very tokens that a call with the same body would have; needs
// no max_tokens. See CountPromptTokens.
BodyAnswer CountTokensBody(absl::string_view body, const ServedModel& model, const CallContext& context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_H_
