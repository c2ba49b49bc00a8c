#include "coordinator/cli/sampling_options.h"

#include <random>
#include <string>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/value_range.h"
#include "common/step/sampling_limits.h"
#include "coordinator/cli/option_values.h"

namespace stagecoach {
namespace {

// The file's value of general.sampling.<name>, when it is there and usable.
template <typename T, typename Range>
std::optional<T> FromFile(const GgufMetadata& metadata, const char* name, Range range) {
  const std::string key = absl::StrCat("general.sampling.", name);
  if (!metadata.Has(key)) return std::nullopt;
  double value = 0;
  bool usable = false;
  if (absl::StatusOr<double> number = metadata.GetFloat(key); number.ok()) {
    value = *number;
    usable = !std::is_integral_v<T>;
  } else if (absl::StatusOr<int64_t> integer = metadata.GetInt(key); integer.ok()) {
    value = static_cast<double>(*integer);
    usable = true;
  }
  // An integer in a double first: a cast of what is beyond it would be undefined.
  const NumberRange numbers = {static_cast<double>(range.min), static_cast<double>(range.max)};
  if (usable && Contains(numbers, value) && Contains(range, static_cast<T>(value))) return static_cast<T>(value);
  LogInfo(
      absl::StrCat("the file's ", key, " is not in its range (", range.min, " to ", range.max, ") and is left out"));
  return std::nullopt;
}

template <typename T, typename Range, typename Out>
void Choose(const std::optional<T>& given, const GgufMetadata& metadata, const char* name, Range range, Out* out) {
  if (given.has_value()) return;
  const std::optional<T> value = FromFile<T>(metadata, name, range);
  if (value.has_value()) *out = static_cast<Out>(*value);
}

void AddNumbers(CLI::App* app, SamplingOptions* o, const SamplingHelp& help) {
  const std::string& group = help.group;
  AddNumber(app, "--temp", &o->temperature, kTemperatureRange, "temperature; 0 always takes the most probable token",
            help.temperature)
      ->group(group);
  AddInteger(app, "--top-k", &o->top_k, kTopKRange, "only the K most probable tokens; 0: all", "0")->group(group);
  AddNumber(app, "--top-p", &o->top_p, kTopPRange, "only the most probable tokens of this total probability", "1")
      ->group(group);
  AddNumber(app, "--min-p", &o->min_p, kMinPRange, "only tokens of this part of the best one's probability", "0")
      ->group(group);
  AddNumber(app, "--repeat-penalty", &o->repeat_penalty, kRepeatPenaltyRange,
            "against tokens of prompt and output; 1: none", "1")
      ->group(group);
  AddInteger(app, "--repeat-last-n", &o->repeat_last_n, kRepeatLastNRange,
             "tokens the repeat penalty looks at; -1: all", "64")
      ->group(group);
  AddNumber(app, "--presence-penalty", &o->presence_penalty, kPenaltyRange, "against tokens of the output, once", "0")
      ->group(group);
  AddNumber(app, "--frequency-penalty", &o->frequency_penalty, kPenaltyRange, "against tokens of the output, each time",
            "0")
      ->group(group);
  AddSeed(app, "--seed", &o->seed, "of the random numbers; when given, the same for every prompt", help.seed)
      ->group(group);
}

}  // namespace

void AddSamplingOptions(CLI::App* app, SamplingOptions* o, const SamplingHelp& help) {
  AddNumbers(app, o, help);
  app->add_flag("--ignore-eos", o->ignore_eos, "never choose a token that ends the generation")->group(help.group);
}

void AddGivenSamplingOptions(CLI::App* app, SamplingOptions* o) {
  AddNumbers(app, o, {.group = "Sampling", .seed = "0"});
}

SamplingParams GivenSampling(const SamplingOptions& options) {
  SamplingParams sampling;
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_k = static_cast<int32_t>(options.top_k.value_or(sampling.top_k));
  sampling.top_p = options.top_p.value_or(sampling.top_p);
  sampling.min_p = options.min_p.value_or(sampling.min_p);
  sampling.repeat_penalty = options.repeat_penalty.value_or(sampling.repeat_penalty);
  sampling.repeat_last_n = static_cast<int32_t>(options.repeat_last_n.value_or(sampling.repeat_last_n));
  sampling.presence_penalty = options.presence_penalty.value_or(sampling.presence_penalty);
  sampling.frequency_penalty = options.frequency_penalty.value_or(sampling.frequency_penalty);
  sampling.seed = options.seed.value_or(sampling.seed);
  return sampling;
}

SamplingParams ResolveSampling(const SamplingOptions& options, const GgufMetadata& metadata) {
  SamplingParams sampling = GivenSampling(options);
  Choose(options.temperature, metadata, "temp", kTemperatureRange, &sampling.temperature);
  Choose(options.top_k, metadata, "top_k", kTopKRange, &sampling.top_k);
  Choose(options.top_p, metadata, "top_p", kTopPRange, &sampling.top_p);
  Choose(options.min_p, metadata, "min_p", kMinPRange, &sampling.min_p);
  Choose(options.repeat_penalty, metadata, "penalty_repeat", kRepeatPenaltyRange, &sampling.repeat_penalty);
  Choose(options.repeat_last_n, metadata, "penalty_last_n", kRepeatLastNRange, &sampling.repeat_last_n);
  // 32 random bits: a number that every JSON reader keeps exactly.
  if (!options.seed.has_value()) sampling.seed = std::random_device{}();
  return sampling;
}

}  // namespace stagecoach
