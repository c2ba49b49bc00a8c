#ifndef STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_REQUEST_H_
#define STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_REQUEST_H_

// What the conversation APIs translate into, and the parts of it that they read alike. Errors are those of ApiStatus.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/serve/api/conversation/tools.h"

namespace stagecoach {

inline constexpr size_t kMostMessages = 4096;
inline constexpr size_t kMostParts = 16384;  // of all messages together, calls included
// In place of what a tool answered with and the model cannot read.
inline constexpr char kOmittedImage[] = "[image omitted: this model reads text only]";

// The same conversation gives the same ChatRequest, whichever API it came by.
struct ChatRequest {
  // As CheckMessages asks for, with the members, in this order, role, content (a string; or several parts of type text;
  // beside calls null instead of "") and, where they are there, name, tool_call_id, reasoning_content (never "") and
  // tool_calls [{id?, type: "function", function: {name: the model's, arguments: a string, or an object}}].
  Json messages = Json::array();
  ToolSet tools;
  std::optional<bool> thinking;     // absent: as the template does by default
  Json variables = Json::object();  // of the template: reasoning_effort, and chat_template_kwargs
  bool continue_final_message = false;
  std::vector<std::string> skipped;  // parts of the conversation that were left out, each once: "input.mcp_call"
};

// Something of this type, which stands in `field`, is left out.
void SkipPart(const char* field, absl::string_view type, ChatRequest* request);

// How hard to think: none, minimal, low, medium, high, xhigh or max. `place` is named in the error.
absl::Status SetEffort(const std::string& place, const std::string& effort, ChatRequest* request);

// chat_template_kwargs.
absl::Status ReadTemplateVariables(FieldReader* fields, ChatRequest* request);

// Counts the parts and calls of a conversation, which stands in `field`, and refuses what is beyond kMostParts.
class PartCounter {
 public:
  explicit PartCounter(const char* field) : field_(field) {}
  absl::Status Count();

 private:
  const char* const field_;
  size_t parts_ = 0;
};

// The content that a list of parts of type text is: one part alone is the same as its text, and none as an empty one.
Json ContentOfParts(Json parts);
// The assistant's content: beside calls a text that is empty is the same as none, null. Some templates write calls only
// then.
Json AssistantContent(Json content, bool has_calls);

// Refuses a part of a message that is no text. `place`: of its type.
absl::Status RefusePart(const std::string& place, absl::string_view type);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_CONVERSATION_CHAT_REQUEST_H_
