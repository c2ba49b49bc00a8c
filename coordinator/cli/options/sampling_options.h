#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_

// The options that say how tokens are chosen.

#include <cstdint>
#include <optional>
#include <string>

#include "common/gguf/gguf_file.h"
#include "common/step/sampling_limits.h"
#include "common/step/step.h"
#include "coordinator/answer/end_of_generation.h"
#include "coordinator/cli/options/option_values.h"

namespace stagecoach {

// What the user gave.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

struct SamplingSetting {
  const char* name;      // of the option, without its dashes
  const char* file_key;  // general.sampling.<file_key> of a model file; nullptr: there is none
  const char* help;
};

// Calls `visit` with the declaration of each setting but the seed, its member of SamplingOptions, its member of
// SamplingParams, whose default is the setting's, and its range.
template <typename Visitor>
void VisitSampling(Visitor&& visit) {
  using Given = SamplingOptions;
  using InForce = SamplingParams;
  visit(SamplingSetting{"temp", "temp", "temperature; 0 always takes the most probable token"}, &Given::temperature,
        &InForce::temperature, kTemperatureRange);
  visit(SamplingSetting{"top-k", "top_k", "only the K most probable tokens; 0: all"}, &Given::top_k, &InForce::top_k,
        kTopKRange);
  visit(SamplingSetting{"top-p", "top_p", "only the most probable tokens of this total probability"}, &Given::top_p,
        &InForce::top_p, kTopPRange);
  visit(SamplingSetting{"min-p", "min_p", "only tokens of this part of the best one's probability"}, &Given::min_p,
        &InForce::min_p, kMinPRange);
  visit(SamplingSetting{"repeat-penalty", "penalty_repeat", "against tokens of prompt and output; 1: none"},
        &Given::repeat_penalty, &InForce::repeat_penalty, kRepeatPenaltyRange);
  visit(SamplingSetting{"repeat-last-n", "penalty_last_n", "tokens the repeat penalty looks at; -1: all"},
        &Given::repeat_last_n, &InForce::repeat_last_n, kRepeatLastNRange);
  visit(SamplingSetting{"presence-penalty", nullptr, "against tokens of the output, once"}, &Given::presence_penalty,
        &InForce::presence_penalty, kPenaltyRange);
  visit(SamplingSetting{"frequency-penalty", nullptr, "against tokens of the output, each time"},
        &Given::frequency_penalty, &InForce::frequency_penalty, kPenaltyRange);
}

// What the help says of them: where their values come from when nobody gives them.
struct SamplingHelp {
  std::string group = "Sampling (defaults: the model file's, else these)";
  std::string temperature = "0";
  std::string seed = "drawn and printed";
};
void AddSamplingOptions(CLI::App* app, SamplingOptions* options, const SamplingHelp& help = {});
// Without --ignore-eos, for a verb that looks neither at the file's values nor at the ends of texts: see GivenSampling.
void AddGivenSamplingOptions(CLI::App* app, SamplingOptions* options);

// The user's values, else those of SamplingParams: greedy, and the seed 0.
SamplingParams GivenSampling(const SamplingOptions& options);

// The user's values, else those the model's author put into the file (general.sampling.*; a value out of range is
// left out with a line on stderr), else greedy. A seed that nobody gave is drawn. Without --ignore-eos: see
// IgnoreEndOfGeneration.
SamplingParams ResolveSampling(const SamplingOptions& options, const GgufMetadata& metadata);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_
