#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_WRITER_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_WRITER_H_

// Answers in the form of OpenAI's Responses: a response object with a list of items, or a stream of events that tell
// how it grows.
//
//   response.created, response.in_progress          the object, without items
//   for each item, one open at a time, output_index 0, 1, 2 ...
//     response.output_item.added
//     response.content_part.added                   of reasoning and messages, which have one part: content_index 0
//     response.<text>.delta ...                     <text>: reasoning_text, output_text, function_call_arguments,
//     response.<text>.done                          custom_tool_call_input
//     response.content_part.done
//     response.output_item.done
//   response.completed, .incomplete or .failed      the whole object; nothing follows
//
// Every event has a sequence_number, from 0.

#include <memory>

#include "common/json/json.h"
#include "coordinator/serve/api/api_dialect.h"

namespace stagecoach {

// Requires plan.repeated: {instructions, max_output_tokens, metadata, parallel_tool_calls, reasoning, text,
// tool_choice, tools}, as the response shows them. `plan` outlives it.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(const CallPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_WRITER_H_
