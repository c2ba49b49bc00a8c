#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CONVERSATION_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CONVERSATION_H_

// A conversation becomes a prompt: the common second half of what the conversation APIs read. Errors are those of
// ApiStatus.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/conversation/chat_request.h"
#include "coordinator/serve/api/generation_fields.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

// A conversation as the model is given it.
struct RenderedConversation {
  std::string text;
  std::vector<TokenId> tokens;       // never empty
  int64_t conversation_tokens = -1;  // of a recurrent model: see GenerationRequest
};
// A prompt that is too long is refused as PromptRoom does.
absl::StatusOr<RenderedConversation> RenderConversation(const ChatRequest& request, const ServedModel& model,
                                                        absl::Time now, const PromptRoom& room);

// How many tokens that has, for clients that ask before they call. Counted up to twice the context, so that they know
// how much is too much; beyond, it is refused as a call would be.
absl::StatusOr<int64_t> CountPromptTokens(const ChatRequest& request, const ServedModel& model,
                                          const CallContext& context);

// Fills what the plan has of the conversation: the prompt, the tools, and how the answer is read. Requires
// plan->fields. `asked`: the most tokens of the answer, if the body says so.
absl::Status PlanConversation(ChatRequest request, std::optional<int64_t> asked, FieldReader* fields,
                              const ServedModel& model, const CallContext& context, CallPlan* plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CONVERSATION_H_
