#ifndef STAGECOACH_COMMON_STEP_SAMPLING_LIMITS_H_
#define STAGECOACH_COMMON_STEP_SAMPLING_LIMITS_H_

// The ranges of what says how tokens are chosen: the same for the command line, the model file, requests, frames and
// stages. step.h checks them.

#include "common/base/value_range.h"
#include "common/step/step.h"

namespace stagecoach {

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

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_SAMPLING_LIMITS_H_
