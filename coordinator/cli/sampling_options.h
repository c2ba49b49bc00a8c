#ifndef STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_

// The options that say how tokens are chosen.

#include <cstdint>
#include <optional>
#include <string>

#include "common/gguf/gguf_file.h"
#include "common/step/step.h"
#include "coordinator/front/end_of_generation.h"

namespace CLI {
class App;
}

namespace stagecoach {

// What the user gave.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

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

#endif  // STAGECOACH_COORDINATOR_CLI_SAMPLING_OPTIONS_H_
