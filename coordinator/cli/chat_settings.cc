#include "coordinator/cli/chat_settings.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/step/sampling_limits.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/api/generation_fields.h"

namespace stagecoach {
namespace {

struct NumberSetting {
  const char* name;
  std::optional<float> SamplingOptions::*given;
  float SamplingParams::*in_force;
  NumberRange range;
};
constexpr NumberSetting kNumberSettings[] = {
    {"temp", &SamplingOptions::temperature, &SamplingParams::temperature, kTemperatureRange},
    {"top-p", &SamplingOptions::top_p, &SamplingParams::top_p, kTopPRange},
    {"min-p", &SamplingOptions::min_p, &SamplingParams::min_p, kMinPRange},
    {"repeat-penalty", &SamplingOptions::repeat_penalty, &SamplingParams::repeat_penalty, kRepeatPenaltyRange},
    {"presence-penalty", &SamplingOptions::presence_penalty, &SamplingParams::presence_penalty, kPenaltyRange},
    {"frequency-penalty", &SamplingOptions::frequency_penalty, &SamplingParams::frequency_penalty, kPenaltyRange},
};

struct IntegerSetting {
  const char* name;
  std::optional<int64_t> SamplingOptions::*given;
  int32_t SamplingParams::*in_force;
  IntegerRange range;
};
constexpr IntegerSetting kIntegerSettings[] = {
    {"top-k", &SamplingOptions::top_k, &SamplingParams::top_k, kTopKRange},
    {"repeat-last-n", &SamplingOptions::repeat_last_n, &SamplingParams::repeat_last_n, kRepeatLastNRange},
};

NumberRange RangeOf(const NumberSetting& setting, SettingRanges ranges) {
  if (ranges == SettingRanges::kEngine) return setting.range;
  const FieldRanges& api = RangesOf(CallRules());
  if (setting.given == &SamplingOptions::temperature) return api.temperature;
  const bool penalty =
      setting.given == &SamplingOptions::presence_penalty || setting.given == &SamplingOptions::frequency_penalty;
  return penalty ? api.penalty : setting.range;
}

constexpr char kSeed[] = "seed";
constexpr char kPredict[] = "predict";
constexpr char kDefault[] = "default";

absl::Status UnknownSetting(absl::string_view name) {
  std::string names;
  for (const NumberSetting& entry : kNumberSettings) absl::StrAppend(&names, entry.name, ", ");
  for (const IntegerSetting& entry : kIntegerSettings) absl::StrAppend(&names, entry.name, ", ");
  return absl::InvalidArgumentError(
      absl::StrCat("there is no '", CutText(name), "', expected one of ", names, kSeed, ", ", kPredict));
}

// The double that is written with as few digits as the float: 0.7, not 0.699999988.
double ShortestDouble(float value) {
  double result = value;
  return absl::SimpleAtod(absl::StrCat(value), &result) && static_cast<float>(result) == value ? result : value;
}

absl::Status Named(absl::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

}  // namespace

absl::Status SetChatSetting(absl::string_view given_name, absl::string_view value, SettingRanges ranges,
                            const ChatSettings& given, ChatSettings* settings) {
  const std::string name = absl::StrReplaceAll(given_name, {{"_", "-"}});  // as APIs and other programs write it
  const bool reset = value == kDefault;
  for (const NumberSetting& entry : kNumberSettings) {
    if (name != entry.name) continue;
    const absl::StatusOr<float> number = ParseNumber(reset ? "0" : value, RangeOf(entry, ranges));
    if (!reset && !number.ok()) return Named(name, number.status());
    settings->sampling.*entry.given = reset ? given.sampling.*entry.given : *number;
    return absl::OkStatus();
  }
  for (const IntegerSetting& entry : kIntegerSettings) {
    if (name != entry.name) continue;
    const absl::StatusOr<int64_t> number = ParseInteger(reset ? "0" : value, entry.range);
    if (!reset && !number.ok()) return Named(name, number.status());
    settings->sampling.*entry.given = reset ? given.sampling.*entry.given : *number;
    return absl::OkStatus();
  }
  if (name == kPredict) {
    const absl::StatusOr<int64_t> number = ParseInteger(reset ? "1" : value, kMaxNewTokensRange);
    if (!number.ok()) return Named(name, number.status());
    settings->max_new_tokens = reset ? given.max_new_tokens : *number;
    return absl::OkStatus();
  }
  if (name != kSeed) return UnknownSetting(given_name);
  uint64_t seed = 0;
  if (!reset && !absl::SimpleAtoi(value, &seed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("seed: '", CutText(value), "' is not a seed, expected 0 to 18446744073709551615"));
  }
  settings->sampling.seed = reset ? given.sampling.seed : seed;
  return absl::OkStatus();
}

absl::Status CheckApiSettings(const ChatSettings& settings) {
  for (const NumberSetting& entry : kNumberSettings) {
    const std::optional<float>& value = settings.sampling.*entry.given;
    if (!value.has_value()) continue;
    const absl::Status status = CheckNumber(*value, RangeOf(entry, SettingRanges::kApi));
    if (!status.ok()) return Named(absl::StrCat("--", entry.name), status);
  }
  return absl::OkStatus();
}

std::vector<GivenSetting> GivenSettings(const ChatSettings& settings) {
  std::vector<GivenSetting> given;
  for (const NumberSetting& entry : kNumberSettings) {
    const std::optional<float>& value = settings.sampling.*entry.given;
    if (value.has_value()) given.push_back({entry.name, ShortestDouble(*value), false});
  }
  for (const IntegerSetting& entry : kIntegerSettings) {
    const std::optional<int64_t>& value = settings.sampling.*entry.given;
    if (value.has_value()) given.push_back({entry.name, static_cast<double>(*value), true});
  }
  if (settings.max_new_tokens.has_value()) {
    given.push_back({kPredict, static_cast<double>(*settings.max_new_tokens), true});
  }
  return given;
}

std::string ChatSettingsText(const ChatSettings& settings, const SamplingParams& sampling) {
  std::string text;
  for (const NumberSetting& entry : kNumberSettings) {
    absl::StrAppendFormat(&text, "  %-18s %g\n", entry.name, sampling.*entry.in_force);
  }
  for (const IntegerSetting& entry : kIntegerSettings) {
    absl::StrAppendFormat(&text, "  %-18s %d\n", entry.name, sampling.*entry.in_force);
  }
  const std::optional<uint64_t>& seed = settings.sampling.seed;
  absl::StrAppendFormat(&text, "  %-18s %s\n", kSeed, seed.has_value() ? absl::StrCat(*seed) : "drawn for each answer");
  const std::optional<int64_t>& predict = settings.max_new_tokens;
  absl::StrAppendFormat(&text, "  %-18s %s\n", kPredict,
                        predict.has_value() ? absl::StrCat(*predict) : "what the context leaves");
  return text;
}

}  // namespace stagecoach
