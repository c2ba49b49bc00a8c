#ifndef STAGECOACH_COORDINATOR_FRONT_API_MODEL_BODIES_H_
#define STAGECOACH_COORDINATOR_FRONT_API_MODEL_BODIES_H_

// The bodies of the routes that need no cluster: which models there are, tokens and text, rendered conversations. Pure
// and thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/front/api/api_error.h"
#include "coordinator/front/api/served_model.h"

namespace stagecoach {

// A body to be answered with 200, or with the error's status.
struct BodyAnswer {
  std::string body;
  std::optional<ApiError> error;  // `body` is its body
};

// GET /v1/models; `anthropic`: the form for clients that send the header anthropic-version. context_tokens: 0 while it
// is not known.
std::string ModelsBody(const ServedModel& model, int64_t context_tokens, bool anthropic);
// GET /v1/models/{name}
BodyAnswer ModelBody(const ServedModel& model, int64_t context_tokens, absl::string_view name, bool anthropic);

// POST /tokenize, /detokenize, /apply-template
BodyAnswer TokenizeBody(absl::string_view body, const ServedModel& model, const CallContext& context);
BodyAnswer DetokenizeBody(absl::string_view body, const ServedModel& model);
BodyAnswer ApplyTemplateBody(absl::string_view body, const ServedModel& model, const CallContext& context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_MODEL_BODIES_H_
