#ifndef STAGECOACH_COORDINATOR_SERVE_API_MODEL_BODIES_H_
#define STAGECOACH_COORDINATOR_SERVE_API_MODEL_BODIES_H_

// The bodies of the routes that need no cluster: models, tokens and text, rendered conversations. Pure, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/serve/api/api_error.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

// A body to be answered with 200, or an error, to be written as its route does.
struct BodyAnswer {
  std::string body;
  std::optional<ApiError> error;
};

// GET /v1/models; `anthropic`: the form for clients that send anthropic-version. context_tokens: 0 while unknown.
std::string ModelsBody(const ServedModel& model, int64_t context_tokens, bool anthropic);
// GET /v1/models/{name}
BodyAnswer ModelBody(const ServedModel& model, int64_t context_tokens, absl::string_view name, bool anthropic);

// GET /tokenizer_info: the texts of the tokens that have a part of their own, and the chat template for conversations
// without tools; null where there is none.
std::string TokenizerInfoBody(const ServedModel& model);

// What POST /tokenize, /detokenize and /apply-template take and give. Beyond the first the caller does not read the
// body, and answers 413, as for routes that count a call's tokens; the others are refused here, with 400, and with 413
// where the reply would be too long.
inline constexpr int64_t kMostTextBodyBytes = int64_t{4} << 20;
inline constexpr size_t kMostTextTokens = size_t{1} << 18;
inline constexpr size_t kMostTextReplyBytes = size_t{8} << 20;
// Of what is listed token by token: it takes a hundred times the memory of the body that asks for it.
inline constexpr size_t kMostListedTokens = size_t{1} << 16;

// POST /tokenize, /detokenize, /apply-template
BodyAnswer TokenizeBody(absl::string_view body, const ServedModel& model, const CallContext& context);
BodyAnswer DetokenizeBody(absl::string_view body, const ServedModel& model);
BodyAnswer ApplyTemplateBody(absl::string_view body, const ServedModel& model, const CallContext& context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_MODEL_BODIES_H_
