#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_INPUT_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_INPUT_H_

// The conversation of a body of OpenAI's Responses. Errors are those of ApiStatus and name the place:
// "input[2].content[0].type".

#include "absl/status/status.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/serve/api/conversation/chat_request.h"

namespace stagecoach {

// instructions, input, tools, tool_choice and parallel_tool_calls.
//   instructions            a system message before all others
//   text, message           a message; nothing at all is one empty message of the user's
//   reasoning, calls        parts of one assistant's message, with the assistant's messages beside them; what several
//                           items say is one text, and so is what they think
//   outputs of calls        messages of the role tool
//   additional_tools        further tools
//   item_reference          refused: the item would have to be stored
//   items of other types    skipped
absl::Status ReadResponsesInput(FieldReader* fields, ChatRequest* request);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_INPUT_H_
