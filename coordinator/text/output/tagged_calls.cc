#include <utility>

#include "common/json/json.h"
#include "coordinator/text/output/call_readers.h"
#include "coordinator/text/output/json_text.h"
#include "coordinator/text/output/marker_search.h"

namespace stagecoach {
namespace {

struct Argument {
  absl::string_view key;
  absl::string_view value;
  bool is_text = false;  // the model says so
};

constexpr size_t kMostArguments = 1'024;

// Text without quotes, of which the schema has to tell what it is.
std::string ValueText(OutputTools::Parameter type, absl::string_view text) {
  if (type == OutputTools::Parameter::kText) return JsonString(text);
  const absl::string_view value = WithoutSpaceAround(text);
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None") return "null";
  return IsJson(value, CallScanner::kMostDepth) ? std::string(value) : JsonString(text);
}

// Only now, as a reader begins anew whenever there is more text.
Calls Tagged(absl::string_view name, const std::vector<Argument>& arguments, const OutputTools& tools,
             CallScanner* scanner) {
  if (name.empty() || name.find_first_of("<\n") != absl::string_view::npos) scanner->Fail();
  if (!scanner->ok()) return {};
  JsonObjectText object;
  for (const Argument& argument : arguments) {
    const OutputTools::Parameter type =
        argument.is_text ? OutputTools::Parameter::kText : tools.Find(name, argument.key);
    object.Set(argument.key, ValueText(type, argument.value));
  }
  return {{std::string(name), object.Text(), ""}};
}

// Whether another argument follows, rather than the end of the call.
bool More(absl::string_view end, const std::vector<Argument>& arguments, CallScanner* scanner) {
  scanner->SkipSpace();
  if (arguments.size() > kMostArguments) scanner->Fail();
  return !scanner->Try(end) && scanner->ok();
}

// The line breaks after the opening and before the closing tag belong to the format.
absl::string_view WithoutFormatBreaks(absl::string_view value) {
  if (!value.empty() && value.front() == '\n') value.remove_prefix(1);
  if (!value.empty() && value.back() == '\n') value.remove_suffix(1);
  return value;
}

}  // namespace

Calls ReadQwenCoder(const OutputTools& tools, CallScanner* scanner) {
  scanner->Try("<tool_call>");
  scanner->SkipSpace();
  scanner->Expect("<function=");
  const absl::string_view name = scanner->HeadUntil(">");
  std::vector<Argument> arguments;
  while (More("</function>", arguments, scanner)) {
    scanner->Expect("<parameter=");
    const absl::string_view key = scanner->HeadUntil(">");
    arguments.push_back({key, WithoutFormatBreaks(scanner->Until("</parameter>"))});
  }
  scanner->TryAfterSpace("</tool_call>");
  return Tagged(name, arguments, tools, scanner);
}

Calls ReadGlm(const OutputTools& tools, CallScanner* scanner) {
  scanner->Expect("<tool_call>");
  scanner->SkipSpace();
  const absl::string_view name = scanner->While([](char byte) { return byte != '<' && byte != '\n'; });
  std::vector<Argument> arguments;
  while (More("</tool_call>", arguments, scanner)) {
    scanner->Expect("<arg_key>");
    const absl::string_view key = scanner->HeadUntil("</arg_key>");
    scanner->SkipSpace();
    scanner->Expect("<arg_value>");
    arguments.push_back({key, scanner->Until("</arg_value>")});
  }
  return Tagged(WithoutSpaceAround(name), arguments, tools, scanner);
}

Calls ReadMinimax(const OutputTools& tools, CallScanner* scanner) {
  scanner->Try("<minimax:tool_call>");
  scanner->SkipSpace();
  scanner->Expect("<invoke name=\"");
  const absl::string_view name = scanner->HeadUntil("\"");
  scanner->Expect(">");
  std::vector<Argument> arguments;
  while (More("</invoke>", arguments, scanner)) {
    scanner->Expect("<parameter name=\"");
    const absl::string_view key = scanner->HeadUntil("\"");
    scanner->Expect(">");
    arguments.push_back({key, scanner->Until("</parameter>")});
  }
  return Tagged(name, arguments, tools, scanner);
}

Calls ReadDeepseekV32(const OutputTools& tools, CallScanner* scanner) {
  if (!scanner->Try("<｜DSML｜function_calls>")) scanner->Try("<｜DSML｜tool_calls>");
  scanner->SkipSpace();
  scanner->Expect("<｜DSML｜invoke name=\"");
  const absl::string_view name = scanner->HeadUntil("\"");
  scanner->Expect(">");
  std::vector<Argument> arguments;
  while (More("</｜DSML｜invoke>", arguments, scanner)) {
    scanner->Expect("<｜DSML｜parameter name=\"");
    const absl::string_view key = scanner->HeadUntil("\"");
    scanner->Expect(" string=\"");
    const bool is_text = scanner->Try("true");
    if (!is_text) scanner->Expect("false");
    scanner->Expect("\">");
    arguments.push_back({key, scanner->Until("</｜DSML｜parameter>"), is_text});
  }
  return Tagged(name, arguments, tools, scanner);
}

}  // namespace stagecoach
