#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_WRITER_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_WRITER_H_

// Answers and errors in the form of Anthropic's Messages. A body is one message, whose content is a list of blocks:
// thinking, text, tool_use. A stream is events with names:
//   message_start         the message without content; its input_tokens are the whole prompt
//   content_block_start   then content_block_delta... and content_block_stop: of each block, one after the other
//   message_delta         why it stopped, and the usage, in which cached tokens stand apart
//   message_stop          or, in place of anything after message_start, `error`, and nothing behind it

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/api_error.h"

namespace stagecoach {

// What a stream says that has nothing to say.
inline constexpr char kMessagesPing[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

// {"type":"error","error":{"type","message"},"request_id"}, with Anthropic's words for types.
std::string MessagesErrorBody(const ApiError& error, absl::string_view request_id);

// For a call with one choice. Of a call that was cut off, or whose arguments are no JSON object, a body has the input
// {}, and a stream what the model wrote.
std::unique_ptr<AnswerWriter> MakeMessagesWriter(const CallPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_MESSAGES_WRITER_H_
