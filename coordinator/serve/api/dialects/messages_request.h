#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_REQUEST_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_REQUEST_H_

// The body of Anthropic's Messages as the one request of the conversation APIs.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/serve/api/conversation/chat_request.h"

namespace stagecoach {

// Reads system, messages, tools, tool_choice, thinking, output_config and chat_template_kwargs. Adds to `ignored` which
// of their members mean nothing here. Errors are those of ApiStatus and name the place in this body.
//   system       The field, and messages of that role: texts, joined by an empty line. Without a text there is none.
//   stamp        A system text's leading "x-anthropic-billing-header:" with its pairs "key=value;" is removed, unless
//                `keep_client_stamp`: it differs from call to call, and nothing behind it would be found in the cache.
//   user         Each tool_result becomes a message of the tool, before what else the user says in this message.
//   assistant    Texts are one text; thinking becomes reasoning_content; redacted_thinking is dropped. Other blocks are
//                skipped, as server_tool_use and web_search_tool_result of another server. As the last message it is
//                continued, unless it calls tools.
//   tools        Those with an input_schema; of other types they are skipped.
//   images etc.  Of the user refused, but in a tool's result, where kOmittedImage stands for them.
absl::StatusOr<ChatRequest> ReadMessagesRequest(FieldReader* fields, bool keep_client_stamp,
                                                std::vector<std::string>* ignored);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_REQUEST_H_
