#include "coordinator/cli/options/sampling_options.h"

#include <random>
#include <type_traits>

#include "common/base/log.h"

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

void AddNumbers(CLI::App* app, SamplingOptions* o, const SamplingHelp& help) {
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    constexpr bool kInteger = std::is_same_v<decltype(range), IntegerRange>;
    const bool temperature = absl::string_view(setting.name) == "temperature";
    AddParsed(app, absl::StrCat("--", setting.flag), setting.help, kInteger ? "N" : "X",
              temperature ? help.temperature : absl::StrCat(SamplingParams().*member),
              [=](const std::string& text) { return Store(ParseIn(text, range), &(*o)[member]); });
  });
  AddSeed(app, "--seed", &o->seed, "of the random numbers; when given, the same for every prompt", help.seed);
}

}  // namespace

void AddSamplingOptions(CLI::App* app, SamplingOptions* o, const SamplingHelp& help) {
  const HelpGroup group(app, help.group);
  AddNumbers(app, o, help);
  AddFlag(app, "--ignore-eos", &o->ignore_eos, "never choose a token that ends the generation");
}

void AddGivenSamplingOptions(CLI::App* app, SamplingOptions* o) {
  const HelpGroup group(app, "Sampling");
  AddNumbers(app, o, {.seed = "0"});
}

SamplingParams GivenSampling(const SamplingOptions& options) {
  SamplingParams sampling;
  VisitSampling([&](const SamplingSetting&, auto member, auto) {
    sampling.*member = options[member].value_or(sampling.*member);
  });
  sampling.seed = options.seed.value_or(sampling.seed);
  return sampling;
}

SamplingParams ResolveSampling(const SamplingOptions& options, const GgufMetadata& metadata) {
  SamplingParams sampling = GivenSampling(options);
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    if (setting.file_key == nullptr || options[member].has_value()) return;
    auto& value = sampling.*member;
    value = FromFile<std::decay_t<decltype(value)>>(metadata, setting.file_key, range).value_or(value);
  });
  // 32 random bits: a number that every JSON reader keeps exactly.
  if (!options.seed.has_value()) sampling.seed = std::random_device{}();
  return sampling;
}

}  // namespace stagecoach
