#ifndef STAGECOACH_COORDINATOR_CLI_OPTIONS_OPTION_VALUES_H_
#define STAGECOACH_COORDINATOR_CLI_OPTIONS_OPTION_VALUES_H_

// Options whose values we parse and range-check ourselves, so that every message has one form: `--temp: -1 is out of
// range, expected 0 to 100`. If a scalar option is given twice, the last value counts.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/value_range.h"
#include "coordinator/front/exit_codes.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach {

// The parsers. Messages do not name the option.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, IntegerRange range);  // decimal
absl::StatusOr<float> ParseNumber(absl::string_view text, NumberRange range);      // finite
inline absl::StatusOr<int64_t> ParseIn(absl::string_view text, IntegerRange range) { return ParseInteger(text, range); }
inline absl::StatusOr<float> ParseIn(absl::string_view text, NumberRange range) { return ParseNumber(text, range); }
absl::StatusOr<uint64_t> ParseSeed(absl::string_view text);
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);  // 1048576, 64K, 512M, 4G, 4GiB; at least 1
absl::StatusOr<double> ParseDuration(absl::string_view text, NumberRange seconds);  // 80ms, 0.2s, 1m30s; in seconds
absl::StatusOr<std::vector<int64_t>> ParseIntegerList(absl::string_view text, IntegerRange range);    // 10,9,9
absl::StatusOr<size_t> ParseChoice(absl::string_view text, const std::vector<std::string>& choices);  // its index
absl::StatusOr<std::string> ParseText(absl::string_view text, const std::string& type_name);          // as of AddText

template <typename T, typename Parsed>
absl::Status Store(absl::StatusOr<Parsed> parsed, T* out) {
  if (!parsed.ok()) return parsed.status();
  *out = *std::move(parsed);
  return absl::OkStatus();
}

// Parses and stores an option's value; messages do not name the option.
using ParseValue = std::function<absl::Status(const std::string&)>;

// `set` gets the chosen one's index.
ParseValue ChoiceParser(const std::vector<std::string>& choices, std::function<void(size_t)> set);

template <typename Enum, size_t kCount>
std::vector<std::string> NamesOf(const NamedValue<Enum> (&table)[kCount]) {
  std::vector<std::string> names;
  for (const NamedValue<Enum>& entry : table) names.push_back(entry.name);
  return names;
}

// `status`, which is not OK, with the option's name before its message, and this exit code.
absl::Status OptionError(absl::string_view option, const absl::Status& status, ExitCode code = ExitCode::kInputFile);

// Returns `path` itself if it cannot be made absolute; opening it will fail.
std::string AbsolutePath(const std::string& path);

// The heading of the help for all options that are added while this lives.
class HelpGroup {
 public:
  HelpGroup(CLI::App* app, const std::string& name);
  ~HelpGroup();
  HelpGroup(const HelpGroup&) = delete;

 private:
  CLI::App* const app_;
  const std::string before_;
};

// `names` in CLI11's form: "-n,--predict". `shown_default` is shown in the help unless empty. `out`, which outlives the
// parsing, changes only if the option is given.
CLI::Option* AddParsed(CLI::App* app, const std::string& names, const std::string& description,
                       const std::string& type_name, const std::string& shown_default, ParseValue parse);
// The same for an option that may be given several times: `parse` gets each of its values.
CLI::Option* AddRepeated(CLI::App* app, const std::string& names, const std::string& description,
                         const std::string& type_name, ParseValue parse);

// What the help shows of a value: nothing of an optional one.
template <typename T>
std::string ShownDefault(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) return absl::StrCat(value);
  return "";
}
// `out` holds a number, or an optional one. Without `shown_default` the help shows what it holds.
template <typename T>
CLI::Option* AddInteger(CLI::App* app, const std::string& names, T* out, IntegerRange range,
                        const std::string& description, const std::optional<std::string>& shown_default = {}) {
  return AddParsed(app, names, description, "N", shown_default.value_or(ShownDefault(*out)),
                   [out, range](const std::string& text) { return Store(ParseInteger(text, range), out); });
}
template <typename T>
CLI::Option* AddNumber(CLI::App* app, const std::string& names, T* out, NumberRange range,
                       const std::string& description, const std::optional<std::string>& shown_default = {}) {
  return AddParsed(app, names, description, "X", shown_default.value_or(ShownDefault(*out)),
                   [out, range](const std::string& text) { return Store(ParseNumber(text, range), out); });
}
template <typename T>
CLI::Option* AddSeed(CLI::App* app, const std::string& names, T* out, const std::string& description,
                     const std::string& shown_default) {
  return AddParsed(app, names, description, "N", shown_default,
                   [out](const std::string& text) { return Store(ParseSeed(text), out); });
}

CLI::Option* AddBytes(CLI::App* app, const std::string& names, uint64_t* out, const std::string& description,
                      const std::string& shown_default);
CLI::Option* AddDuration(CLI::App* app, const std::string& names, double* out_s, NumberRange seconds,
                         const std::string& description, const std::string& shown_default = "");
CLI::Option* AddIntegerList(CLI::App* app, const std::string& names, std::vector<int64_t>* out, IntegerRange range,
                            const std::string& description);
// The default is what `out` holds.
CLI::Option* AddChoice(CLI::App* app, const std::string& names, std::string* out,
                       const std::vector<std::string>& choices, const std::string& description);
// The names of an enum, whose table outlives the parsing.
template <typename Enum, size_t kCount>
CLI::Option* AddChoice(CLI::App* app, const std::string& names, Enum* out, const NamedValue<Enum> (&table)[kCount],
                       const std::string& description) {
  const std::vector<std::string> choices = NamesOf(table);
  return AddParsed(app, names, description, absl::StrJoin(choices, "|"), NameOf(table, *out),
                   ChoiceParser(choices, [out, &table](size_t i) { *out = table[i].value; }));
}
// Given or not.
CLI::Option* AddFlag(CLI::App* app, const std::string& names, bool* out, const std::string& description);
// Refuses an empty value if `type_name` is FILE, DIR, PATH, PROGRAM or LIST.
CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description);
// Must be given.
void AddRequiredText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description);
// May be given several times; each adds one value, taken as it stands.
CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* out,
                      const std::string& type_name, const std::string& description);
// Positional arguments, any number of them.
void AddWords(CLI::App* app, const std::string& name, std::vector<std::string>* out, const std::string& type_name,
              const std::string& description);

// May be given several times, each a comma list. The values replace those of `out`.
template <typename T>
CLI::Option* AddList(CLI::App* app, const std::string& names, std::vector<T>* out, const std::string& type_name,
                     const std::string& description, std::function<absl::StatusOr<T>(absl::string_view)> parse) {
  return AddRepeated(app, names, description, type_name,
                     [out, parse = std::move(parse), first = true](const std::string& text) mutable -> absl::Status {
                       if (std::exchange(first, false)) out->clear();
                       for (const absl::string_view part : absl::StrSplit(text, ',')) {
                         T value{};
                         if (absl::Status bad = Store(parse(absl::StripAsciiWhitespace(part)), &value); !bad.ok()) {
                           return bad;
                         }
                         out->push_back(std::move(value));
                       }
                       return absl::OkStatus();
                     });
}
template <typename Enum, size_t kCount>
CLI::Option* AddChoices(CLI::App* app, const std::string& names, std::vector<Enum>* out,
                        const NamedValue<Enum> (&table)[kCount], const std::string& description) {
  return AddList<Enum>(app, names, out, "NAME,...", description, [&table](absl::string_view text) {
    const absl::StatusOr<size_t> chosen = ParseChoice(text, NamesOf(table));
    return chosen.ok() ? absl::StatusOr<Enum>(table[*chosen].value) : chosen.status();
  });
}

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTIONS_OPTION_VALUES_H_
