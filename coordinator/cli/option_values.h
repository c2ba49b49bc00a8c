#ifndef STAGECOACH_COORDINATOR_CLI_OPTION_VALUES_H_
#define STAGECOACH_COORDINATOR_CLI_OPTION_VALUES_H_

// Options whose values are parsed and checked against a range by us, so that every message has one form:
// `--temp: -1 is out of range, expected 0 to 100`. Of a scalar option given twice the last counts.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/named_values.h"
#include "common/base/value_range.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach {

// The parsers, for tests and for values that do not come from the command line. Messages do not name the option.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, IntegerRange range);  // decimal
absl::StatusOr<float> ParseNumber(absl::string_view text, NumberRange range);      // finite
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);  // 1048576, 64K, 512M, 4G, 4GiB; at least 1
absl::StatusOr<double> ParseDuration(absl::string_view text, NumberRange seconds);  // 80ms, 0.2s, 1m30s; in seconds
absl::StatusOr<std::vector<int64_t>> ParseIntegerList(absl::string_view text, IntegerRange range);    // 10,9,9
absl::StatusOr<size_t> ParseChoice(absl::string_view text, const std::vector<std::string>& choices);  // its index
absl::StatusOr<std::string> ParseText(absl::string_view text, const std::string& type_name);          // as of AddText

// `names` is CLI11's form: "-n,--predict". `shown_default` appears in the help; empty: none is shown. What is written
// to `out` only changes when the option is given; `out` outlives the parsing.
CLI::Option* AddParsed(CLI::App* app, const std::string& names, const std::string& description,
                       const std::string& type_name, const std::string& shown_default,
                       std::function<absl::Status(const std::string&)> parse);
CLI::Option* AddInteger(CLI::App* app, const std::string& names, int64_t* out, IntegerRange range,
                        const std::string& description, const std::string& shown_default);
CLI::Option* AddInteger(CLI::App* app, const std::string& names, std::optional<int64_t>* out, IntegerRange range,
                        const std::string& description, const std::string& shown_default);
CLI::Option* AddNumber(CLI::App* app, const std::string& names, double* out, NumberRange range,
                       const std::string& description, const std::string& shown_default);
CLI::Option* AddNumber(CLI::App* app, const std::string& names, std::optional<float>* out, NumberRange range,
                       const std::string& description, const std::string& shown_default);
CLI::Option* AddSeed(CLI::App* app, const std::string& names, std::optional<uint64_t>* out,
                     const std::string& description, const std::string& shown_default);
CLI::Option* AddBytes(CLI::App* app, const std::string& names, uint64_t* out, const std::string& description,
                      const std::string& shown_default);
CLI::Option* AddDuration(CLI::App* app, const std::string& names, double* out_s, NumberRange seconds,
                         const std::string& description);
CLI::Option* AddIntegerList(CLI::App* app, const std::string& names, std::vector<int64_t>* out, IntegerRange range,
                            const std::string& description);
// The default is what `out` holds.
CLI::Option* AddChoice(CLI::App* app, const std::string& names, std::string* out,
                       const std::vector<std::string>& choices, const std::string& description);
// Given or not.
CLI::Option* AddFlag(CLI::App* app, const std::string& names, bool* out, const std::string& description);
// `set` gets the chosen one's index.
CLI::Option* AddChoice(CLI::App* app, const std::string& names, const std::string& shown_default,
                       const std::vector<std::string>& choices, std::function<void(size_t)> set,
                       const std::string& description);
// The names of an enum, whose table outlives the parsing.
template <typename Enum, size_t kCount>
CLI::Option* AddChoice(CLI::App* app, const std::string& names, Enum* out, const NamedValue<Enum> (&table)[kCount],
                       const std::string& description) {
  std::vector<std::string> choices;
  for (const NamedValue<Enum>& entry : table) choices.push_back(entry.name);
  return AddChoice(
      app, names, NameOf(table, *out), choices, [out, &table](size_t i) { *out = table[i].value; }, description);
}
// The same beside a name for none of them.
template <typename Enum, size_t kCount>
CLI::Option* AddOptionalChoice(CLI::App* app, const std::string& names, std::optional<Enum>* out,
                               const NamedValue<Enum> (&table)[kCount], const std::string& none,
                               const std::string& description) {
  std::vector<std::string> choices = {none};
  for (const NamedValue<Enum>& entry : table) choices.push_back(entry.name);
  return AddChoice(
      app, names, none, choices,
      [out, &table](size_t i) { *out = i == 0 ? std::nullopt : std::optional<Enum>(table[i - 1].value); }, description);
}
// An empty value is refused where `type_name` names something that is to be found: FILE, DIR, PATH, PROGRAM or LIST.
CLI::Option* AddText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description);
// Must be given.
void AddRequiredText(CLI::App* app, const std::string& names, std::string* out, const std::string& type_name,
                     const std::string& description);
// May be given several times; each adds one value, taken as it stands.
CLI::Option* AddTexts(CLI::App* app, const std::string& names, std::vector<std::string>* out,
                      const std::string& type_name, const std::string& description);

// Arguments without an option's name, as many as there are.
void AddWords(CLI::App* app, const std::string& name, std::vector<std::string>* out, const std::string& type_name,
              const std::string& description);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_OPTION_VALUES_H_
