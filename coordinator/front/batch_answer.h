#ifndef STAGECOACH_COORDINATOR_FRONT_BATCH_ANSWER_H_
#define STAGECOACH_COORDINATOR_FRONT_BATCH_ANSWER_H_

// The lines of a batch's output, as OpenAI writes them.

#include <cstdint>
#include <string>

#include "coordinator/front/batch_line.h"
#include "coordinator/front/completion.h"
#include "coordinator/front/json.h"

namespace stagecoach {

// How every line begins.
inline constexpr char kBatchLineStart[] = "{\"id\":";
// The error of a line whose custom_id an earlier line has.
inline constexpr char kDuplicateCustomId[] = "duplicate_custom_id";

// An answer in OpenAI's form. `id` is unique, `created` in seconds since 1970.
Json BatchAnswerJson(const std::string& id, const BatchLine& line, const std::string& model, int64_t created,
                     int64_t prompt_tokens, const Completion& completion, const Tokenizer& tokenizer);

// {"id", "custom_id", "response": null, "error": {"code", "message", "line"}}. The message begins with the line's
// number.
Json BatchErrorJson(const std::string& id, const BatchLine& line);

// A token as OpenAI's completions show it: its text, or "bytes:\xe2\x80" when its bytes are no valid UTF-8.
std::string TokenText(const Tokenizer& tokenizer, TokenId token);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_BATCH_ANSWER_H_
