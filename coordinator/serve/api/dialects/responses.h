#ifndef STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_H_
#define STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_H_

// What OpenAI's Responses have beside kResponsesApi. Pure, thread-safe.

#include "absl/strings/string_view.h"
#include "coordinator/serve/api/model_bodies.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

// POST /v1/responses/input_tokens: {"object", "input_tokens"}, of the very tokens that a call with the same body would
// have. Prompts are counted up to twice the context.
BodyAnswer CountInputTokensBody(absl::string_view body, const ServedModel& model, const CallContext& context);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_DIALECTS_RESPONSES_H_
