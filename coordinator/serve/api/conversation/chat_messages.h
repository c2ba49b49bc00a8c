#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_MESSAGES_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_MESSAGES_H_

// Conversations in the form of chat completions. Errors are those of ApiStatus and name the place.

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/serve/api/conversation/chat_request.h"

namespace stagecoach {

// A list of messages, as ChatRequest::messages. One part of text alone is the same as a string.
absl::StatusOr<Json> ReadMessages(const Json& messages);

// messages, tools, tool_choice, parallel_tool_calls, reasoning_effort, chat_template_kwargs and continue_final_message.
absl::StatusOr<ChatRequest> ReadChatRequest(FieldReader* fields);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_MESSAGES_H_
