#ifndef STAGECOACH_COORDINATOR_SERVE_API_GENERATION_FIELDS_H_
#define STAGECOACH_COORDINATOR_SERVE_API_GENERATION_FIELDS_H_

// Reads fields of a client's object, and those that say how answers to conversations and prompts are generated and
// sent. Errors are those of ApiStatus and name the field.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/value_range.h"
#include "common/json/json.h"
#include "common/step/sampling.h"
#include "coordinator/serve/api/api_error.h"
#include "coordinator/serve/api/served_model.h"

namespace stagecoach {

// The object that a body is. kInvalidJson.
absl::StatusOr<Json> ParseBody(absl::string_view body);

// kInvalidValue: "'field': what".
absl::Status WrongField(absl::string_view field, absl::string_view what);
// "expected a string, found number"
absl::Status WrongType(absl::string_view field, absl::string_view expected, const Json& found);
// kMissingParameter.
absl::Status MissingField(absl::string_view field);
// "has 7 prompts, expected at most 6"
absl::Status CheckSize(absl::string_view field, size_t size, absl::string_view unit, size_t most);
// For a message: nothing nested, which may be long.
std::string ShownValue(const Json& value);

// The integer of a JSON number like 4.0 or 1e3. Absent for other values, and from 2^53 on, where doubles are inexact.
std::optional<int64_t> IntegerOfFloat(const Json& value);

// Each checks a value that is not null. Integers may be written as 4, 4.0 or 4e0; -0 is 0 if the range has negative
// numbers, else an error. A number in a string is an error.
absl::Status ReadBool(absl::string_view field, const Json& value, bool* out);
absl::Status ReadString(absl::string_view field, const Json& value, std::string* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int64_t* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, IntegerRange range, int32_t* out);
absl::Status ReadNumber(absl::string_view field, const Json& value, NumberRange range, float* out);
// A list of token ids, which are appended.
absl::Status ReadTokens(absl::string_view field, const Json& list, int64_t vocab, std::vector<TokenId>* out);

// Looks fields up by name, null being absent, and knows which were never looked up.
class FieldReader {
 public:
  explicit FieldReader(const Json* object) : object_(object) {}  // an object, which outlives this

  // Null when it is absent. It counts as known from now on.
  const Json* Find(absl::string_view field);

  // An absent field leaves `out` as it is.
  absl::Status Bool(absl::string_view field, bool* out);
  absl::Status String(absl::string_view field, std::string* out);
  template <typename Range, typename Out>
  absl::Status Number(absl::string_view field, Range range, Out* out);

  // The fields that were never looked up, in their order; null is absent here too.
  std::vector<std::string> Unknown() const;

 private:
  const Json* object_;
  std::set<std::string, std::less<>> known_;
};

template <typename Range, typename Out>
absl::Status FieldReader::Number(absl::string_view field, Range range, Out* out) {
  const Json* value = Find(field);
  return value == nullptr ? absl::OkStatus() : ReadNumber(field, *value, range, out);
}

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
  std::vector<std::string> ignored;  // names of what stands inside of these and has no effect
};

// Reads all but the fields in which the APIs differ: the most tokens of an answer, and log-probabilities. Refuses known
// but unsupported fields unless their value asks for nothing.
absl::Status ReadGenerationFields(FieldReader* fields, const ServedModel& model, const CallContext& context,
                                  GenerationFields* out);

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
