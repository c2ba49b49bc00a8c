#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_H_

// The conversation of a body: its messages and tools, checked and brought to the one form that ChatFormat takes, and
// the prompt that comes of them. Errors are those of ApiStatus and name the place: "messages[2].content[0].type".

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/json/json.h"
#include "coordinator/serve/api/generation_fields.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

inline constexpr size_t kMostMessages = 4096;
inline constexpr size_t kMostParts = 16384;  // of all messages together
inline constexpr size_t kMostTools = 256;
inline constexpr size_t kMostToolBytes = 1 << 20;  // of all tools together

// A list of messages whose members are role, content, and where they were there name, tool_call_id, tool_calls and
// reasoning_content. One part of text alone is the same as a string; other parts are all of type text.
absl::StatusOr<Json> ReadMessages(const Json& messages);

struct ToolFields {
  Json tools;  // a list of functions as they were sent; empty when the model is to be told of none
  std::vector<std::string> ignored;
};

// tools, tool_choice and parallel_tool_calls. What would need answers of a certain form is refused.
absl::StatusOr<ToolFields> ReadTools(FieldReader* fields);

// A conversation as the model is given it.
struct RenderedConversation {
  std::string text;
  std::vector<TokenId> tokens;
  int64_t conversation_tokens = -1;  // of a recurrent model: see GenerationRequest
  std::vector<std::string> ignored;
};
// messages, tools, and what else decides the text. A prompt that is too long is refused as PromptRoom does.
absl::StatusOr<RenderedConversation> ReadConversation(FieldReader* fields, const ServedModel& model, absl::Time now,
                                                      const PromptRoom& room);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_H_
