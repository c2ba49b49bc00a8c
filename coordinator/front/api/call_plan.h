#ifndef STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_
#define STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_

// What the body of a call asks for, once it is read: all that it takes to run it and to write its answer.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/json/json.h"
#include "coordinator/front/api/api_call.h"
#include "coordinator/front/api/field_reader.h"
#include "coordinator/front/api/generation_fields.h"
#include "coordinator/front/api/served_model.h"
#include "coordinator/text/output/output_format.h"

namespace stagecoach {

struct CallPrompt {
  std::vector<TokenId> tokens;  // never empty
  int64_t max_new_tokens = 0;
  std::string text;  // with echo: what is put before the answer
};

// How long a prompt may be. Errors are kContextLengthExceeded and say how long it is, unless that is more than twice
// too long: a client that would shorten it is told a number, and no text is worth more work than that.
class PromptRoom {
 public:
  // `asked`: most tokens of the answer, of which at least one has to fit unless it is 0; absent: what is left.
  // context_tokens: of both together, 0 where the engine is to judge.
  PromptRoom(std::optional<int64_t> asked, int64_t context_tokens) : asked_(asked), context_(context_tokens) {}

  // So many tokens of a prompt are to be counted, and then no more of them.
  size_t most_counted() const;
  // Of a prompt of which there was no end.
  absl::Status TooLong() const;
  // How many tokens the answer may have: `asked`, or what is left if that is less or nothing was asked for.
  absl::StatusOr<int64_t> ForAnswer(int64_t prompt_tokens) const;

 private:
  int64_t most() const { return context_ - (asked_ == 0 ? 0 : 1); }
  absl::Status TooLong(int64_t tokens, absl::string_view more) const;

  std::optional<int64_t> asked_;
  int64_t context_ = 0;
};

struct CallPlan {
  ApiRoute route = ApiRoute::kCompletions;
  const ServedModel* model = nullptr;
  std::string id;
  int64_t created = 0;
  std::string fingerprint;
  GenerationFields fields;
  std::vector<CallPrompt> prompts;  // each is answered fields.n times
  bool echo = false;
  // Absent: the text is the answer as it is.
  std::optional<OutputFormat> output_format;
  std::string prompt_end;                // a piece of the prompt's text, for the parser
  std::vector<std::string> answer_ends;  // texts before which every answer ends, whatever the call says
  std::vector<std::string> ignored;
};

// Of one call, all its choices: log-probabilities in the answer beside echoed prompts, where a token with its offset
// and its text takes as much as kPerEchoedToken more; about 100 MiB. And bytes of echoed prompts.
inline constexpr int64_t kMostEchoedLogprobs = int64_t{1} << 20;
inline constexpr int64_t kPerEchoedToken = 4;
inline constexpr int64_t kMostEchoedBytes = int64_t{64} << 20;

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
// messages, tools, and what else decides the text. A prompt that is too long is refused as PromptRoom does.
absl::StatusOr<RenderedConversation> ReadConversation(FieldReader* fields, const ServedModel& model, absl::Time now,
                                                      const PromptRoom& room);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_CALL_PLAN_H_
