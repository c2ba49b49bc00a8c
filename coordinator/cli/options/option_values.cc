#include "coordinator/cli/options/option_values.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "CLI/App.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "common/base/shown_text.h"

namespace stagecoach {
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, IntegerRange range) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", CutText(text), "' is not an integer, ", Expected(range)));
  }
  if (absl::Status status = CheckInteger(value, range); !status.ok()) return status;
  return value;
}

absl::StatusOr<float> ParseNumber(absl::string_view text, NumberRange range) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", CutText(text), "' is not a number, ", Expected(range)));
  }
  if (absl::Status status = CheckNumber(value, range); !status.ok()) return status;
  const auto number = static_cast<float>(value);
  if (absl::Status status = CheckNumber(number, range); !status.ok())
    return status;  // 1e-60 is above 0, not as a float
  return number;
}

absl::StatusOr<uint64_t> ParseSeed(absl::string_view text) {
  uint64_t seed = 0;
  if (absl::SimpleAtoi(text, &seed)) return seed;
  return absl::InvalidArgumentError(
      absl::StrCat("'", CutText(text), "' is not a seed, expected 0 to 18446744073709551615"));
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", CutText(text), "' is not a size, expected bytes such as 268435456, 262144K, 256M or 1G"));
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  uint64_t value = 0;
  if (digits == 0 || !absl::SimpleAtoi(text.substr(0, digits), &value)) return bad;
  std::string unit = absl::AsciiStrToLower(text.substr(digits));
  if (absl::EndsWith(unit, "ib")) unit.resize(unit.size() - 2);
  // 0 also if it is none of them.
  const size_t power = unit.empty() ? 0 : absl::string_view("kmgt").find(unit) + 1;
  if (unit.size() > 1 || (power == 0 && !unit.empty())) return bad;
  const int shift = static_cast<int>(10 * power);
  if (value == 0 || value > (std::numeric_limits<uint64_t>::max() >> 1 >> shift)) return bad;
  return value << shift;
}

absl::StatusOr<double> ParseDuration(absl::string_view text, NumberRange seconds) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", CutText(text), "' is not a duration, expected such as 80ms or 0.2s"));
  }
  const double value = absl::ToDoubleSeconds(duration);
  if (!Contains(seconds, value)) {
    return absl::OutOfRangeError(absl::StrCat(text, " is out of range, ", Expected(seconds), " seconds"));
  }
  return value;
}

absl::StatusOr<std::vector<int64_t>> ParseIntegerList(absl::string_view text, IntegerRange range) {
  std::vector<int64_t> values;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<int64_t> value = ParseInteger(part, range);
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  return values;
}

absl::StatusOr<size_t> ParseChoice(absl::string_view text, const std::vector<std::string>& choices) {
  const auto chosen = std::find(choices.begin(), choices.end(), text);
  if (chosen != choices.end()) return static_cast<size_t>(chosen - choices.begin());
  return absl::InvalidArgumentError(absl::StrCat("'", CutText(text), "' is not one of ", absl::StrJoin(choices, ", ")));
}

absl::StatusOr<std::string> ParseText(absl::string_view text, const std::string& type_name) {
  // For example an unset variable in a script; to omit a value is to omit the option.
  const bool names_something =
      type_name == "FILE" || type_name == "DIR" || type_name == "PATH" || type_name == "PROGRAM" || type_name == "LIST";
  if (!text.empty() || !names_something) return std::string(text);
  return absl::InvalidArgumentError(absl::StrCat("is empty, expected ", type_name));
}

ParseValue ChoiceParser(const std::vector<std::string>& choices, std::function<void(size_t)> set) {
  return [choices, set = std::move(set)](const std::string& text) {
    const absl::StatusOr<size_t> chosen = ParseChoice(text, choices);
    if (chosen.ok()) set(*chosen);
    return chosen.status();
  };
}

absl::Status OptionError(absl::string_view option, const absl::Status& status, ExitCode code) {
  return WithExitCode(absl::Status(status.code(), absl::StrCat(option, ": ", status.message())), code);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

HelpGroup::HelpGroup(CLI::App* app, const std::string& name) : app_(app), before_(app->option_defaults()->get_group()) {
  app_->option_defaults()->group(name);
}

HelpGroup::~HelpGroup() { app_->option_defaults()->group(before_); }

CLI::Option* AddParsed(CLI::App* app, const std::string& names, const std::string& description,
                       const std::string& type_name, const std::string& shown_default, ParseValue parse) {
  // The names are known to the option only, and it does not exist yet when its callback is made.
  auto shown_name = std::make_shared<std::string>();
  CLI::Option* option = app->add_option(
      names,
      [parse = std::move(parse), shown_name](const CLI::results_t& values) {
        for (const std::string& value : values) {
          if (absl::Status status = parse(value); !status.ok()) {
            throw CLI::ValidationError(*shown_name, std::string(status.message()));
          }
        }
        return true;
      },
      description);
  *shown_name = option->get_name();
  option->type_name(type_name);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (!shown_default.empty()) option->default_str(shown_default);
  return option;
}

CLI::Option* AddRepeated(CLI::App* app, const std::string& names, const std::string& description,
                         const std::string& type_name, ParseValue parse) {
  return AddParsed(app, names, description, type_name, "", std::move(parse))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* AddBytes(CLI::App* app, const std::string& names, uint64_t* out, const std::string& description,
                      const std::string& shown_default) {
  return AddParsed(app, names, description, "BYTES", shown_default,
                   [out](const std::string& text) { return Store(ParseBytes(text), out); });
}

CLI::Option* AddDuration(CLI::App* app, const std::string& names, double* out_s, NumberRange seconds,
                         const std::string& description, const std::string& shown_default) {
  return AddParsed(app, names, description, "DURATION", shown_default,
                   [out_s, seconds](const std::string& text) { return Store(ParseDuration(text, seconds), out_s); });
}

CLI::Option* AddIntegerList(CLI::App* app, const std::string& names, std::vector<int64_t>* out, IntegerRange range,
                            const std::string& description) {
  return AddParsed(app, names, description, "N,N,...", "",
                   [out, range](const std::string& text) { return Store(ParseIntegerList(text, range), out); });
}

CLI::Option* AddChoice(CLI::App* app, const std::string& names, std::string* out,
                       const std::vector<std::string>& choices, const std::string& description) {
  return AddParsed(app, names, description, absl::StrJoin(choices, "|"), *out,
                   ChoiceParser(choices, [out, choices](size_t i) { *out = choices[i]; }));
}

CLI::Option* AddFlag(CLI::App* app, const std::string& names, bool* out, const std::string& description) {
  return app->add_flag(names, *out, description);
}

CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description) {
  return AddParsed(app, names, description, type_name, *out,
                   [=](const std::string& text) { return Store(ParseText(text, type_name), out); });
}

void AddRequiredText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description) {
  AddText(app, names, out, type_name, description)->required();
}

CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* out,
                      const std::string& type_name, const std::string& description) {
  return AddRepeated(app, names, description, type_name, [out](const std::string& text) {
    out->push_back(text);
    return absl::OkStatus();
  });
}

void AddWords(CLI::App* app, const std::string& name, std::vector<std::string>* out, const std::string& type_name,
              const std::string& description) {
  AddTexts(app, name, out, type_name, description)->expected(0, -1)->allow_extra_args();
}

}  // namespace stagecoach
