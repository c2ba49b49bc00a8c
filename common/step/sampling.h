#ifndef STAGECOACH_COMMON_STEP_SAMPLING_H_
#define STAGECOACH_COMMON_STEP_SAMPLING_H_

// The vocabulary of sampling: parameters, their ranges, and one declaration of each that a user gives as a number,
// which command line, chat, model file, requests, frames and checks visit. A new one is a member, its declaration, a
// field of the same name in pb::SamplingParams (proto/step.proto), and what obeys it (stage_worker/sample).

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/value_range.h"

namespace stagecoach {

// How the last stage picks a token. The order is: logit bias, repetition / presence / frequency penalties, then with
// temperature > 0 top-k, top-p, min-p, temperature, and a draw addressed by (seed, position); greedy at temperature 0.
// Equal logits rank by token id, lower first. Log-probabilities are the log-softmax of the raw logits, before all of
// this.
struct SamplingParams {
  float temperature = 0;  // 0 is greedy
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;     // over the last repeat_last_n tokens of prompt and output
  float presence_penalty = 0;   // over the output only
  float frequency_penalty = 0;  // over the output only
  int32_t repeat_last_n = 64;   // -1: all
  uint64_t seed = 0;
  int32_t logprobs = -1;        // -1: none wanted; K >= 0: the chosen token's and the K most probable
  int32_t prompt_logprobs = 0;  // K >= 0: beside the log-probability of each target the K most probable tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  int32_t min_new_tokens = 0;       // >= 0: before the output has as many tokens,
  std::vector<TokenId> end_tokens;  // each of these is impossible; after the penalties
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};
inline constexpr int kMaxLogprobs = 128;
// Every row of a prompt can have them, so this bounds the size of a result; a job without has no room for them.
inline constexpr int kMaxPromptLogprobs = 20;

inline constexpr NumberRange kTemperatureRange = {0, 100};
inline constexpr IntegerRange kTopKRange = {0, 2147483647};
inline constexpr NumberRange kTopPRange = {0, 1, true};
inline constexpr NumberRange kMinPRange = {0, 1};
inline constexpr NumberRange kRepeatPenaltyRange = {0, 100, true};
inline constexpr IntegerRange kRepeatLastNRange = {-1, 2147483647};
inline constexpr NumberRange kPenaltyRange = {-100, 100};    // presence and frequency
inline constexpr NumberRange kLogitBiasRange = {-1e6, 1e6};  // or -inf within the program: never this token
inline constexpr int kMaxLogitBias = 1024;                   // entries of one sequence
inline constexpr IntegerRange kLogprobsRange = {0, kMaxLogprobs};
inline constexpr IntegerRange kPromptLogprobsRange = {0, kMaxPromptLogprobs};
inline constexpr IntegerRange kMaxNewTokensRange = {1, 2147483647};
inline constexpr IntegerRange kMinNewTokensRange = {0, 2147483647};
inline constexpr int kMaxEndTokens = 256;  // that a sequence may hold back

struct SamplingSetting {
  const char* name;      // of the member, of its field in a frame and in a request
  const char* flag;      // of its option, without the dashes
  const char* file_key;  // general.sampling.<file_key> of a model file; nullptr: there is none
  const char* help;
  const char* alias = nullptr;  // the field's name in requests to other servers, which ours takes, too
};

// Calls visit(declaration, &SamplingParams::member, range) for each but the seed; its default is the member's.
template <typename Visitor>
void VisitSampling(Visitor&& visit) {
  using P = SamplingParams;
  visit(SamplingSetting{"temperature", "temp", "temp", "temperature; 0 always takes the most probable token"},
        &P::temperature, kTemperatureRange);
  visit(SamplingSetting{"top_k", "top-k", "top_k", "only the K most probable tokens; 0: all"}, &P::top_k, kTopKRange);
  visit(SamplingSetting{"top_p", "top-p", "top_p", "only the most probable tokens of this total probability"},
        &P::top_p, kTopPRange);
  visit(SamplingSetting{"min_p", "min-p", "min_p", "only tokens of this part of the best one's probability"}, &P::min_p,
        kMinPRange);
  visit(SamplingSetting{"repeat_penalty", "repeat-penalty", "penalty_repeat",
                        "against tokens of prompt and output; 1: none", "repetition_penalty"},
        &P::repeat_penalty, kRepeatPenaltyRange);
  visit(SamplingSetting{"repeat_last_n", "repeat-last-n", "penalty_last_n",
                        "tokens the repeat penalty looks at; -1: all"},
        &P::repeat_last_n, kRepeatLastNRange);
  visit(SamplingSetting{"presence_penalty", "presence-penalty", nullptr, "against tokens of the output, once"},
        &P::presence_penalty, kPenaltyRange);
  visit(SamplingSetting{"frequency_penalty", "frequency-penalty", nullptr, "against tokens of the output, each time"},
        &P::frequency_penalty, kPenaltyRange);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_SAMPLING_H_
