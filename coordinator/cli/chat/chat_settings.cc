#include "coordinator/cli/chat/chat_settings.h"

#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/shown_text.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/serve/api/generation_fields.h"

namespace stagecoach {
namespace {

template <typename Range>
Range RangeFor(SettingRanges ranges, const SamplingSetting& setting, Range range) {
  return ranges == SettingRanges::kEngine ? range : ApiRange(setting, range, RangesOf(CallRules()));
}

constexpr char kSeed[] = "seed";
constexpr char kPredict[] = "predict";
constexpr char kDefault[] = "default";

absl::Status UnknownSetting(absl::string_view name) {
  std::string names;
  VisitSampling([&](const SamplingSetting& setting, auto...) { absl::StrAppend(&names, setting.flag, ", "); });
  return absl::InvalidArgumentError(
      absl::StrCat("there is no '", CutText(name), "', expected one of ", names, kSeed, ", ", kPredict));
}

absl::Status Named(absl::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

// `parse` reads a value that is not "default".
template <typename T, typename Parse>
absl::Status SetOne(absl::string_view name, absl::string_view value, const std::optional<T>& given, const Parse& parse,
                    std::optional<T>* out) {
  if (value == kDefault) {
    *out = given;
    return absl::OkStatus();
  }
  const absl::Status stored = Store(parse(value), out);
  return stored.ok() ? stored : Named(name, stored);
}

}  // namespace

absl::Status SetChatSetting(absl::string_view given_name, absl::string_view value, SettingRanges ranges,
                            const ChatSettings& given, ChatSettings* settings) {
  const std::string name = absl::StrReplaceAll(given_name, {{"_", "-"}});  // as APIs and other programs write it
  if (name == kSeed) return SetOne(name, value, given.sampling.seed, ParseSeed, &settings->sampling.seed);
  if (name == kPredict) {
    const auto parse = [](absl::string_view text) { return ParseInteger(text, kMaxNewTokensRange); };
    return SetOne(name, value, given.max_new_tokens, parse, &settings->max_new_tokens);
  }
  absl::Status set = UnknownSetting(given_name);
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    if (name != setting.flag) return;
    const auto parse = [&](absl::string_view text) { return ParseIn(text, RangeFor(ranges, setting, range)); };
    set = SetOne(name, value, given.sampling[member], parse, &settings->sampling[member]);
  });
  return set;
}

absl::Status CheckApiSettings(const ChatSettings& settings) {
  absl::Status status;
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    const auto value = settings.sampling[member];
    if constexpr (std::is_same_v<decltype(range), NumberRange>) {
      if (!status.ok() || !value.has_value()) return;
      status = CheckNumber(*value, RangeFor(SettingRanges::kApi, setting, range));
      if (!status.ok()) status = Named(absl::StrCat("--", setting.flag), status);
    }
  });
  return status;
}

std::vector<GivenSetting> GivenSettings(const ChatSettings& settings) {
  std::vector<GivenSetting> given;
  VisitSampling([&](const SamplingSetting& setting, auto member, auto range) {
    const auto value = settings.sampling[member];
    if (!value.has_value()) return;
    constexpr bool kInteger = std::is_same_v<decltype(range), IntegerRange>;
    given.push_back({setting.flag, setting.alias == nullptr ? setting.name : setting.alias,
                     kInteger ? Json(*value) : FloatJson(static_cast<float>(*value))});
  });
  if (settings.max_new_tokens.has_value()) {
    given.push_back({kPredict, "max_tokens", *settings.max_new_tokens});
  }
  return given;
}

std::string ChatSettingsText(const ChatSettings& settings, const SamplingParams& sampling) {
  std::string text;
  const auto line = [&text](absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&text, "  %-18s %s\n", name, value);
  };
  VisitSampling(
      [&](const SamplingSetting& setting, auto member, auto) { line(setting.flag, absl::StrCat(sampling.*member)); });
  const std::optional<uint64_t>& seed = settings.sampling.seed;
  line(kSeed, seed.has_value() ? absl::StrCat(*seed) : "drawn for each answer");
  const std::optional<int64_t>& predict = settings.max_new_tokens;
  line(kPredict, predict.has_value() ? absl::StrCat(*predict) : "what the context leaves");
  return text;
}

}  // namespace stagecoach
