#ifndef STAGECOACH_COORDINATOR_SERVE_API_BATCH_LINE_H_
#define STAGECOACH_COORDINATOR_SERVE_API_BATCH_LINE_H_

// One line of a batch's input, an OpenAI batch request for one of kApiDialects,
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 16, ...}}
// and the lines of its output, as OpenAI writes them. Bodies are read and answered as a server does.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/serve/api/api_dialect.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

struct BatchError {
  std::string code;     // "invalid_json", "invalid_request", "missing_custom_id", "duplicate_custom_id", "rejected",
                        // "failed", "line_too_long"
  std::string message;  // without the line number
};

struct BatchLine {
  int64_t number = 0;     // from 1
  std::string custom_id;  // empty when the line has none
  std::optional<BatchError> error;
  // Without an error:
  const ApiDialect* api = nullptr;
  std::shared_ptr<const Json> body;  // until it is prepared
  std::unique_ptr<ApiCall> call;     // then: with one choice, no stream
};

// How every line of the output begins.
inline constexpr char kBatchLineStart[] = "{\"id\":";
// The error of a line that could not be computed to its end.
inline constexpr char kBatchFailed[] = "failed";
// The error of a line whose custom_id an earlier line has.
inline constexpr char kDuplicateCustomId[] = "duplicate_custom_id";

// Reads what stands around the body. Never fails: what is wrong is in `error`.
BatchLine ParseBatchLine(int64_t number, absl::string_view text);
// Makes the call, or an error. What counts is CallRules::Batch(), whatever the context says: a line has one answer, and
// fields of the body that are not known are an error, for they would change the answer without a word.
void PrepareBatchLine(const ServedModel& model, CallContext context, BatchLine* line);

// A call's end without an answer: "failed" when it could not be computed to its end, else "rejected".
BatchError BatchErrorOf(const ApiError& error);

// The answer of a line: `body` is what its call gave. `id` is unique.
Json BatchAnswerJson(const std::string& id, const BatchLine& line, absl::string_view body);

// {"id", "custom_id", "response": null, "error": {"code", "message", "line"}}. The message begins with the line's
// number.
Json BatchErrorJson(const std::string& id, const BatchLine& line);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_BATCH_LINE_H_
