#ifndef STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_
#define STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_

// What the body of a call asks for, once it is read: all that it takes to run it and to write its answer.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "coordinator/front/api/api_call.h"
#include "coordinator/front/api/field_reader.h"
#include "coordinator/front/api/generation_fields.h"
#include "coordinator/front/api/served_model.h"
#include "coordinator/front/json.h"
#include "coordinator/text/output/output_format.h"

namespace stagecoach {

struct CallPrompt {
  std::vector<TokenId> tokens;  // never empty
  int64_t max_new_tokens = 0;
  std::string text;  // with echo: what is put before the answer
};

struct CallPlan {
  ApiRoute route = ApiRoute::kCompletions;
  const ServedModel* model = nullptr;
  std::string id;
  int64_t created = 0;
  GenerationFields fields;
  std::vector<CallPrompt> prompts;  // each is answered fields.n times
  bool echo = false;
  // Absent: the text is the answer as it is.
  std::optional<OutputFormat> output_format;
  std::string prompt_end;  // a piece of the prompt's text, for the parser
  std::vector<std::string> ignored;
};

// What the two APIs have of their own, and the prompts. `fields` is the body.
absl::Status ReadChatFields(FieldReader* fields, const ServedModel& model, const CallContext& context, CallPlan* plan);
absl::Status ReadCompletionFields(FieldReader* fields, const ServedModel& model, const CallContext& context,
                                  CallPlan* plan);

// A conversation as the model is given it.
struct RenderedConversation {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<std::string> ignored;
};
// messages, tools, and what else decides the text.
absl::StatusOr<RenderedConversation> ReadConversation(FieldReader* fields, const ServedModel& model, absl::Time now);

// How many tokens the answer to a prompt may have: `asked`, or what the context leaves if that is less or nothing was
// asked for. kContextLengthExceeded: it leaves none.
absl::StatusOr<int64_t> RoomForAnswer(int64_t prompt_tokens, std::optional<int64_t> asked, int64_t context_tokens);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_
