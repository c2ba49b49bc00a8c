#ifndef STAGECOACH_COORDINATOR_FRONT_API_GENERATION_FIELDS_H_
#define STAGECOACH_COORDINATOR_FRONT_API_GENERATION_FIELDS_H_

// The fields that say how an answer is generated and sent: the same for conversations and prompts.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/value_range.h"
#include "common/step/step.h"
#include "coordinator/front/api/field_reader.h"
#include "coordinator/front/api/served_model.h"

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

// All of them but those in which the APIs differ: the most tokens of an answer, and log-probabilities. Also refuses
// what is known and cannot be done, unless its value asks for nothing.
absl::Status ReadGenerationFields(FieldReader* fields, const ServedModel& model, const CallContext& context,
                                  GenerationFields* out);

// Whether min_tokens agrees with the most tokens that the answer may have: `asked`, or absent where nobody said.
absl::Status CheckMinTokens(const GenerationFields& fields, std::optional<int64_t> asked);

// Where unknown fields are refused: those that may stand there as they cannot change the answer.
void SkipHarmlessFields(FieldReader* fields);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_API_GENERATION_FIELDS_H_
