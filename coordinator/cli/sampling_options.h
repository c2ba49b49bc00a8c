#ifndef STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_

// The options that say how tokens are chosen.

#include <cstdint>
#include <optional>

#include "CLI/App.hpp"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/step/step.h"
#include "coordinator/cli/option_values.h"

namespace stagecoach {

// The ranges, one for the command line, the model file and the lines of a batch.
inline constexpr NumberRange kTemperatureRange = {0, 100};
inline constexpr IntegerRange kTopKRange = {0, 2147483647};
inline constexpr NumberRange kTopPRange = {0, 1, true};
inline constexpr NumberRange kMinPRange = {0, 1};
inline constexpr NumberRange kRepeatPenaltyRange = {0, 100, true};
inline constexpr IntegerRange kRepeatLastNRange = {-1, 2147483647};
inline constexpr NumberRange kPenaltyRange = {-100, 100};  // presence and frequency
inline constexpr NumberRange kLogitBiasRange = {-1e6, 1e6};
inline constexpr IntegerRange kLogprobsRange = {0, kMaxLogprobs};
inline constexpr IntegerRange kMaxNewTokensRange = {1, 2147483647};

// What the user gave.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

void AddSamplingOptions(CLI::App* app, SamplingOptions* options);

// The user's values, else those the model's author put into the file (general.sampling.*; a value out of range is
// left out with a line on stderr), else greedy. A seed that nobody gave is drawn. Without --ignore-eos: see
// IgnoreEndOfGeneration.
SamplingParams ResolveSampling(const SamplingOptions& options, const GgufMetadata& metadata);

// Makes these tokens impossible.
void IgnoreEndOfGeneration(absl::Span<const TokenId> tokens, SamplingParams* sampling);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_
