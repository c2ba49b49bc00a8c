#ifndef STAGECOACH_COORDINATOR_FRONT_API_CHAT_MESSAGES_H_
#define STAGECOACH_COORDINATOR_FRONT_API_CHAT_MESSAGES_H_

// The messages and tools of chat completions, checked and brought to the one form that ChatFormat takes. Errors are
// those of ApiStatus and name the place: "messages[2].content[0].type".

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "coordinator/front/api/field_reader.h"

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

  ToolFields();
};

// tools, tool_choice and parallel_tool_calls. What would need answers of a certain form is refused.
absl::StatusOr<ToolFields> ReadTools(FieldReader* fields);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_CHAT_MESSAGES_H_
