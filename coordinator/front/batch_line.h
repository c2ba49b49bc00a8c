#ifndef STAGECOACH_COORDINATOR_FRONT_BATCH_LINE_H_
#define STAGECOACH_COORDINATOR_FRONT_BATCH_LINE_H_

// One line of a batch's input: an OpenAI batch request for /v1/completions,
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 16, ...}}

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

// What holds for lines that do not say otherwise, and the model's limits.
struct BatchDefaults {
  SamplingParams sampling;
  int64_t max_new_tokens = 256;
  bool ignore_eos = false;
  int64_t vocab = 0;  // token ids are below it
};

struct BatchRequest {
  std::string model;                // as the line has it; empty when it has none. Not checked: there is one model
  std::optional<std::string> text;  // one of these two is the prompt
  std::vector<TokenId> tokens;
  SamplingParams sampling;
  int64_t max_new_tokens = 0;
  std::vector<std::string> stops;
  bool ignore_eos = false;
};

struct BatchError {
  std::string code;     // "invalid_json", "invalid_request", "missing_custom_id", "duplicate_custom_id", "rejected",
                        // "failed",
                        // "line_too_long"
  std::string message;  // without the line number
};

struct BatchLine {
  int64_t number = 0;     // from 1
  std::string custom_id;  // empty when the line has none
  BatchRequest request;
  std::optional<BatchError> error;
};

// Never fails: what is wrong is in `error`. Fields that are null count as absent; fields of the body that are not known
// are an error, for they would change the answer without a word. n, best_of, echo, stream and suffix may only have the
// values that change nothing.
BatchLine ParseBatchLine(int64_t number, absl::string_view text, const BatchDefaults& defaults);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_BATCH_LINE_H_
