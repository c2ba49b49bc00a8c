#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_

// The options that say how tokens are chosen.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/gguf/gguf_file.h"
#include "common/step/sampling.h"
#include "coordinator/answer/answer.h"
#include "coordinator/cli/options/option_values.h"

namespace stagecoach {

// What the user gave.
class SamplingOptions {
 public:
  // options[&SamplingParams::top_k]; valid until another is asked for.
  std::optional<float>& operator[](float SamplingParams::*member) { return Of(numbers_, member); }
  std::optional<int32_t>& operator[](int32_t SamplingParams::*member) { return Of(integers_, member); }
  template <typename T>
  std::optional<T> operator[](T SamplingParams::*member) const {
    return SamplingOptions(*this)[member];
  }

  std::optional<uint64_t> seed;
  bool ignore_eos = false;

 private:
  template <typename T>
  using Given = std::vector<std::pair<T SamplingParams::*, std::optional<T>>>;
  template <typename T>
  static std::optional<T>& Of(Given<T>& given, T SamplingParams::*member) {
    for (auto& [of, value] : given) {
      if (of == member) return value;
    }
    return given.emplace_back(member, std::nullopt).second;
  }

  Given<float> numbers_;
  Given<int32_t> integers_;
};

// Help texts: where values come from if the user gives none.
struct SamplingHelp {
  std::string group = "Sampling (defaults: the model file's, else these)";
  std::string temperature = "0";
  std::string seed = "drawn and printed";
};
void AddSamplingOptions(CLI::App* app, SamplingOptions* options, const SamplingHelp& help = {});
// Without --ignore-eos, for verbs that use neither the file's values nor the ends of texts; see GivenSampling.
void AddGivenSamplingOptions(CLI::App* app, SamplingOptions* options);

// The user's values, else those of SamplingParams: greedy, and the seed 0.
SamplingParams GivenSampling(const SamplingOptions& options);

// The user's values, else the model file's (general.sampling.*; values out of range are logged and ignored), else
// greedy. Draws the seed if the user gives none. Ignores --ignore-eos: see IgnoreEndOfGeneration.
SamplingParams ResolveSampling(const SamplingOptions& options, const GgufMetadata& metadata);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_SAMPLING_OPTIONS_H_
