#ifndef STAGECOACH_COORDINATOR_SERVE_API_GENERATION_FIELDS_H_
#define STAGECOACH_COORDINATOR_SERVE_API_GENERATION_FIELDS_H_

// The fields of a body that say how an answer is generated and sent. Errors are those of ApiStatus and name the field.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/base/value_range.h"
#include "common/json/json.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/body_fields.h"
#include "coordinator/serve/api/bound_answer.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

inline constexpr size_t kMostStops = 64;  // of strings, and of tokens
inline constexpr IntegerRange kStopBytesRange = {1, 256};
inline constexpr IntegerRange kTopLogprobsRange = {0, 20};  // of conversations

// What an API allows, which is less than the engine can do.
struct FieldRanges {
  NumberRange temperature;
  NumberRange penalty;  // presence and frequency
  NumberRange logit_bias;
  IntegerRange logprobs;  // of completions; with a prompt that is echoed kPromptLogprobsRange
};
const FieldRanges& RangesOf(const CallRules& rules);
inline IntegerRange ApiRange(const SamplingSetting&, IntegerRange range, const FieldRanges&) { return range; }
NumberRange ApiRange(const SamplingSetting& setting, NumberRange range, const FieldRanges& ranges);

struct GenerationFields {
  std::string model;  // what the answer calls it
  SamplingParams sampling;
  int n = 1;
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  // beside those that end every answer
  bool include_stop = false;         // the stop string is part of the text
  bool render_control = false;       // the text of control tokens stays in the answer
  bool ignore_eos = false;
  int64_t min_tokens = 0;  // of an answer
  std::string cache_salt;
  int32_t priority_class = 1;  // 0 goes first, 2 last
  bool progress = false;       // a stream tells how far the prompt is
  bool timings = false;        // the answer tells how long it took
  bool stream = false;
  bool include_usage = false;
  std::optional<absl::Duration> timeout;
  std::optional<AskedForm> form;     // that the answer is held to
  std::vector<std::string> ignored;  // names of what stands inside of these and has no effect
};

// A field that is known and cannot be honoured.
struct RefusedField {
  const char* field;
  const char* neutral;  // JSON of a value that asks for nothing
  const char* why;
};
// Of completions and chat completions.
inline constexpr RefusedField kRefusedChoiceFields[] = {
    {"suffix", "\"\"", "is a field of /v1/completions, and of no conversation"},  // the first: completions have it
    {"use_beam_search", "false", "is not supported"},
    {"prompt_logprobs", "null", "is not supported; completions with echo and logprobs score a prompt"},
    {"functions", "[]",
     "is the old form of tools; send {\"type\": \"function\", \"function\": ...} for each in 'tools'"},
    {"function_call", "\"none\"", "is the old form of a choice of tools; send 'tool_choice', and functions in 'tools'"},
    {"web_search_options", "null", "is not supported"},
    {"modalities", "[\"text\"]", "this model writes text only"},
    {"audio", "null", "this model writes text only"},
};

// Which fields an API has, and under which names; one that it lacks is unknown to it. Every API has model, temperature,
// top_p, top_k, seed, stream, skip_special_tokens, priority, timeout_s and cache_salt.
struct FieldGroups {
  const char* stop = "stop";  // the strings that end an answer
  bool min_p = true;
  bool penalties = true;  // frequency, presence and repetition penalties, repeat_last_n, logit_bias
  bool ends = true;       // stop_token_ids, min_tokens, ignore_eos, include_stop_str_in_output
  bool choices = true;    // n, best_of
  bool stream_options = true;
  bool reports = true;  // return_progress, timings
  FormSpelling form = FormSpelling::kResponseFormat;
  absl::Span<const RefusedField> refused = {};  // beside those that every API refuses
};

// Reads the fields of these groups. Refuses known but unsupported fields unless their value asks for nothing. Not the
// most tokens of an answer and log-probabilities, in which the APIs differ.
absl::Status ReadGenerationFields(FieldReader* fields, const FieldGroups& groups, const ServedModel& model,
                                  const CallContext& context, GenerationFields* out);

// The most tokens of an answer, by the last of `names` that is there; absent: `out` stays.
absl::Status ReadMaxTokens(FieldReader* fields, absl::Span<const char* const> names, std::optional<int64_t>* out);

// Whether min_tokens agrees with the most tokens that the answer may have: `asked`, or absent where nobody said.
absl::Status CheckMinTokens(const GenerationFields& fields, std::optional<int64_t> asked);

// Where unknown fields are refused: permits those that cannot change the answer.
void SkipHarmlessFields(FieldReader* fields);

// The limit of a prompt's length. Errors are kContextLengthExceeded and give lengths up to twice the limit.
class PromptRoom {
 public:
  // `asked`: most tokens of the answer, of which at least one has to fit unless it is 0; absent: what is left.
  // context_tokens: of both together, 0 where the engine is to judge.
  PromptRoom(std::optional<int64_t> asked, int64_t context_tokens) : asked_(asked), context_(context_tokens) {}

  // Tokens of a prompt after which counting stops.
  size_t most_counted() const;
  // For a prompt with more than that.
  absl::Status TooLong() const;
  // The most tokens of the answer: `asked` if given, at most the rest of the context.
  absl::StatusOr<int64_t> ForAnswer(int64_t prompt_tokens) const;

 private:
  int64_t most() const { return context_ - (asked_ == 0 ? 0 : 1); }
  absl::Status TooLong(int64_t tokens, absl::string_view more) const;

  std::optional<int64_t> asked_;
  int64_t context_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_API_GENERATION_FIELDS_H_
