#include "coordinator/text/grammar/form/call_markup.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "coordinator/text/grammar/json/json_rules.h"
#include "coordinator/text/grammar/json/json_schema.h"
#include "coordinator/text/output/call_scanner.h"

namespace stagecoach {
namespace {

// How a format writes calls: `open`, then calls with `between` between them, then `close`. In them
//   %F  the function         %A  its arguments: an object of JSON, or `argument` for each of them
//   %K  an argument's name   %V  its value        %B  whether that is a text: true or false
//   %I  an id of nine letters and digits          %N  a number
struct CallMarkup {
  OutputFormat format;
  absl::string_view begin;  // the mark that stands first
  absl::string_view open;   // after `begin`, of what encloses all calls; empty: `begin` stands before each of them
  absl::string_view call;
  absl::string_view between;
  absl::string_view close;
  absl::string_view argument = "";
  bool encloses = false;
  bool one_only = false;  // a turn ends with a call
};

constexpr absl::string_view kArgumentsJson = "{\"name\": \"%F\", \"arguments\": %A}";
constexpr absl::string_view kQwenCall = "\n<function=%F>\n%A</function>\n</tool_call>";
constexpr absl::string_view kQwenArgument = "<parameter=%K>\n%V\n</parameter>\n";
constexpr absl::string_view kDsmlCall = "<｜DSML｜invoke name=\"%F\">\n%A</｜DSML｜invoke>\n";
constexpr absl::string_view kDsmlArgument = "<｜DSML｜parameter name=\"%K\" string=\"%B\">%V</｜DSML｜parameter>\n";

using enum OutputFormat;

constexpr CallMarkup kCallMarkups[] = {
    {.format = kHermesJson,
     .begin = "<tool_call>",
     .call = "\n{\"name\": \"%F\", \"arguments\": %A}\n</tool_call>",
     .between = "\n"},
    {.format = kQwen3Coder, .begin = "<tool_call>", .call = kQwenCall, .between = "\n", .argument = kQwenArgument},
    {.format = kQwen35, .begin = "<tool_call>", .call = kQwenCall, .between = "\n", .argument = kQwenArgument},
    {.format = kNemotron3,
     .begin = "<tool_call>",
     .call = "\n<function=%F>\n%A</function>\n</tool_call>\n",
     .argument = kQwenArgument},
    {.format = kHarmony,
     .begin = "<|channel|>",
     .call = "commentary to=functions.%F <|constrain|>json<|message|>%A",
     .one_only = true},
    {.format = kGlm45,
     .begin = "<tool_call>",
     .call = "%F\n%A</tool_call>",
     .between = "\n",
     .argument = "<arg_key>%K</arg_key>\n<arg_value>%V</arg_value>\n"},
    {.format = kGlm47,
     .begin = "<tool_call>",
     .call = "%F%A</tool_call>",
     .argument = "<arg_key>%K</arg_key><arg_value>%V</arg_value>"},
    {.format = kDeepseekV31,
     .begin = "<｜tool▁calls▁begin｜>",
     .call = "<｜tool▁call▁begin｜>%F<｜tool▁sep｜>%A<｜tool▁call▁end｜>",
     .close = "<｜tool▁calls▁end｜>",
     .encloses = true},
    {.format = kDeepseekR1,
     .begin = "<｜tool▁calls▁begin｜>",
     .call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%F\n```json\n%A\n```<｜tool▁call▁end｜>",
     .between = "\n",
     .close = "<｜tool▁calls▁end｜>",
     .encloses = true},
    {.format = kDeepseekV32,
     .begin = "<｜DSML｜function_calls>",
     .open = "\n",
     .call = kDsmlCall,
     .close = "</｜DSML｜function_calls>",
     .argument = kDsmlArgument,
     .encloses = true},
    {.format = kDeepseekV32,
     .begin = "<｜DSML｜tool_calls>",
     .open = "\n",
     .call = kDsmlCall,
     .close = "</｜DSML｜tool_calls>",
     .argument = kDsmlArgument,
     .encloses = true},
    {.format = kKimiK2,
     .begin = "<|tool_calls_section_begin|>",
     .call = "<|tool_call_begin|>functions.%F:%N<|tool_call_argument_begin|>%A<|tool_call_end|>",
     .close = "<|tool_calls_section_end|>",
     .encloses = true},
    {.format = kLlama3Json, .begin = "{", .call = "\"name\": \"%F\", \"parameters\": %A}", .one_only = true},
    {.format = kMistralV3,
     .begin = "[TOOL_CALLS]",
     .open = "[",
     .call = "{\"name\": \"%F\", \"arguments\": %A, \"id\": \"%I\"}",
     .between = ", ",
     .close = "]",
     .encloses = true},
    {.format = kMistralSmall32, .begin = "[TOOL_CALLS]", .call = "%F[CALL_ID]%I[ARGS]%A"},
    {.format = kMistralArgs, .begin = "[TOOL_CALLS]", .call = "%F[ARGS]%A"},
    {.format = kMinimaxM2,
     .begin = "<minimax:tool_call>",
     .open = "\n",
     .call = "<invoke name=\"%F\">\n%A</invoke>\n",
     .close = "</minimax:tool_call>",
     .argument = "<parameter name=\"%K\">%V</parameter>\n",
     .encloses = true},
    {.format = kCommandR7b,
     .begin = "<|START_ACTION|>",
     .open = "[\n    ",
     .call = "{\"tool_call_id\": \"%N\", \"tool_name\": \"%F\", \"parameters\": %A}",
     .between = ",\n    ",
     .close = "\n]<|END_ACTION|>",
     .encloses = true},
    // In JSON, which these models know as well: in Python's manner the schema could not be held.
    {.format = kLfm2,
     .begin = "<|tool_call_start|>",
     .open = "[",
     .call = kArgumentsJson,
     .between = ", ",
     .close = "]<|tool_call_end|>",
     .encloses = true},
    {.format = kGranite3,
     .begin = "<|tool_call|>",
     .open = "[",
     .call = kArgumentsJson,
     .between = ", ",
     .close = "]",
     .encloses = true},
    {.format = kNemotronNanoV2,
     .begin = "<TOOLCALL>",
     .open = "[",
     .call = kArgumentsJson,
     .between = ", ",
     .close = "]</TOOLCALL>",
     .encloses = true},
};

// The two texts around a place in a template.
std::pair<absl::string_view, absl::string_view> SplitAt(absl::string_view text, absl::string_view place) {
  const size_t at = text.find(place);
  CHECK(at != absl::string_view::npos);
  return {text.substr(0, at), text.substr(at + place.size())};
}

// Between tags an argument's name has to be told from them: as CallScanner::HeadUntil reads it, to the end of its tag.
bool IsTagName(absl::string_view name) {
  constexpr size_t kMostBytes = CallScanner::kMostHead - 32;
  return name.find_first_of("<>{}\"\n\r\t") == absl::string_view::npos && !name.empty() && name.front() != ' ' &&
         name.back() != ' ' && name.size() <= kMostBytes;
}

class CallWriter {
 public:
  CallWriter(const CallMarkup& markup, const OutputTools& tools, const FormatText& text, GrammarRules* rules)
      : markup_(markup), tools_(tools), text_(text), json_(rules, markup.argument.empty() ? "" : "<"), rules_(*rules) {}

  // What follows the name of a function in a call of it.
  absl::StatusOr<ExprId> AfterName(const CallableTool& tool);
  // %I and %N in it.
  ExprId Template(absl::string_view text) const;

 private:
  absl::StatusOr<ExprId> Arguments(const CallableTool& tool, absl::string_view rule_name);
  absl::StatusOr<ExprId> ArgumentsInTags(const CallableTool& tool, absl::string_view rule_name);
  absl::StatusOr<ExprId> ArgumentInTags(const CallableTool& tool, const ArgumentRule& argument) const;
  absl::Status CannotWrite(absl::string_view what, const ArgumentRule& argument) const;
  ExprId Argument(ExprId name, bool is_text, ExprId value) const;
  ExprId TextArgument(ExprId name) const;
  ExprId AnyArgument();
  bool says_text() const { return absl::StrContains(markup_.argument, "%B"); }
  absl::string_view argument_end() const { return SplitAt(markup_.argument, "%V").second; }
  // The tag in it, which is what readers look for. A line break before it is the format's.
  absl::string_view closing_tag() const {
    const absl::string_view end = argument_end();
    return end.substr(end.find('<'), end.find('>') + 1 - end.find('<'));
  }

  const CallMarkup& markup_;
  const OutputTools& tools_;
  const FormatText& text_;
  JsonRules json_;
  GrammarRules& rules_;
};

ExprId CallWriter::Template(absl::string_view text) const {
  std::vector<ExprId> parts;
  for (size_t at = text.find('%'); at != absl::string_view::npos; at = text.find('%')) {
    parts.push_back(text_.Exactly(text.substr(0, at)));
    ByteSet set;
    for (int byte = '0'; byte <= 'z'; ++byte) {
      const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
      if (byte <= '9' || (text[at + 1] == 'I' && is_letter)) set.set(static_cast<size_t>(byte));
    }
    parts.push_back(text[at + 1] == 'I' ? rules_.Repeat(rules_.Class(set), 9, 9)
                                        : rules_.Repeat(rules_.Class(set), 1, 4));
    text.remove_prefix(at + 2);
  }
  parts.push_back(text_.Exactly(text));
  return parts.size() == 1 ? parts[0] : rules_.Sequence(parts);
}

absl::StatusOr<ExprId> CallWriter::AfterName(const CallableTool& tool) {
  const auto [before, after] = SplitAt(SplitAt(markup_.call, "%F").second, "%A");
  const std::string name = absl::StrCat("arguments of ", tool.name);
  const absl::StatusOr<ExprId> arguments = Arguments(tool, name);
  if (!arguments.ok()) {
    return absl::Status(arguments.status().code(),
                        absl::StrCat("tool '", tool.name, "': ", arguments.status().message()));
  }
  const RuleId rule = rules_.Declare(name);
  rules_.Define(rule, rules_.Sequence({Template(before), *arguments, Template(after)}));
  return rules_.Call(rule);
}

absl::StatusOr<ExprId> CallWriter::Arguments(const CallableTool& tool, absl::string_view rule_name) {
  if (!markup_.argument.empty()) return ArgumentsInTags(tool, rule_name);
  if (!tool.bind_arguments) return json_.Object();
  return AddArguments(tool.parameters, rule_name, &json_);
}

absl::StatusOr<ExprId> CallWriter::ArgumentsInTags(const CallableTool& tool, absl::string_view rule_name) {
  std::optional<std::vector<ArgumentRule>> arguments;
  if (tool.bind_arguments) {
    ASSIGN_OR_RETURN(arguments, AddEachArgument(tool.parameters, rule_name, &json_));
  }
  if (!arguments.has_value()) return rules_.Repeat(AnyArgument(), 0);
  std::vector<ExprId> parts;
  for (const ArgumentRule& argument : *arguments) {
    const absl::StatusOr<ExprId> part = ArgumentInTags(tool, argument);
    if (argument.required) RETURN_IF_ERROR(part.status());
    if (part.ok()) parts.push_back(argument.required ? *part : rules_.Repeat(*part, 0, 1));
  }
  return rules_.Sequence(parts);
}

absl::Status CallWriter::CannotWrite(absl::string_view what, const ArgumentRule& argument) const {
  return absl::UnimplementedError(absl::StrCat("the ", what, " of its argument ", ShownText(argument.name),
                                               " cannot be written in ", OutputFormatName(markup_.format),
                                               ": choose another"));
}

// kUnimplemented: it cannot be written.
absl::StatusOr<ExprId> CallWriter::ArgumentInTags(const CallableTool& tool, const ArgumentRule& argument) const {
  if (!IsTagName(argument.name)) return CannotWrite("name", argument);
  const ExprId name = rules_.Literal(argument.name);
  const bool is_text = tools_.Find(tool.name, argument.name) == OutputTools::Parameter::kText;
  if (!is_text) return Argument(name, /*is_text=*/false, argument.value);
  if (!argument.texts.has_value()) return TextArgument(name);
  std::vector<ExprId> ways;
  for (const std::string& text : *argument.texts) {
    if (!absl::StrContains(text, closing_tag())) ways.push_back(rules_.Literal(text));
  }
  if (!ways.empty()) {
    return Argument(name, /*is_text=*/true, rules_.Sequence({rules_.Choice(ways), text_.Exactly(argument_end())}));
  }
  if (says_text()) return Argument(name, /*is_text=*/false, argument.value);
  return CannotWrite("enum", argument);
}

// `value`: with what ends the argument where it is a text.
ExprId CallWriter::Argument(ExprId name, bool is_text, ExprId value) const {
  const auto [before, after] = SplitAt(markup_.argument, "%K");
  std::string between(SplitAt(after, "%V").first);
  const size_t flag = between.find("%B");
  if (flag != std::string::npos) between.replace(flag, 2, is_text ? "true" : "false");
  const ExprId end = is_text ? rules_.Literal("") : text_.Exactly(argument_end());
  return rules_.Sequence({text_.Exactly(before), name, text_.Exactly(between), value, end});
}

// Of any text.
ExprId CallWriter::TextArgument(ExprId name) const {
  const absl::string_view end = argument_end(), tag = closing_tag();
  const size_t tag_end = end.find(tag) + tag.size();
  const std::vector<std::string> others =
      tag_end > tag.size() ? std::vector{std::string(tag)} : std::vector<std::string>();
  const ExprId value = text_.UpTo(end.substr(0, tag_end), others);
  return Argument(name, /*is_text=*/true, rules_.Sequence({value, text_.Exactly(end.substr(tag_end))}));
}

ExprId CallWriter::AnyArgument() {
  ByteSet set;
  for (const char byte : absl::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")) {
    set.set(static_cast<unsigned char>(byte));
  }
  const ExprId name = rules_.Repeat(rules_.Class(set), 1, 64);
  if (!says_text()) return TextArgument(name);
  return rules_.Choice({TextArgument(name), Argument(name, /*is_text=*/false, json_.Value())});
}

// As OutputTools reads tools.
Json ToolList(absl::Span<const CallableTool> tools) {
  Json list = Json::array();
  for (const CallableTool& tool : tools) {
    list.push_back({{"type", "function"}, {"function", {{"name", tool.name}, {"parameters", tool.parameters}}}});
  }
  return list;
}

// A rule of one call, without the mark that begins it.
absl::StatusOr<ExprId> AddCall(const CallMarkup& markup, absl::Span<const CallableTool> tools, const FormatText& text,
                               GrammarRules* rules) {
  const OutputTools output_tools(ToolList(tools));
  CallWriter writer(markup, output_tools, text, rules);
  std::vector<ExprId> ways;
  for (const CallableTool& tool : tools) {
    ASSIGN_OR_RETURN(const ExprId after_name, writer.AfterName(tool));
    ways.push_back(rules->Sequence({rules->Literal(tool.name), after_name}));
  }
  const RuleId call = rules->Declare("call");
  const ExprId before_name = writer.Template(SplitAt(markup.call, "%F").first);
  rules->Define(call, rules->Sequence({before_name, rules->Choice(ways)}));
  return rules->Call(call);
}

MarkedCalls CallsIn(const CallMarkup& markup, ExprId call, CallCount count, const FormatText& text,
                    GrammarRules* rules) {
  const bool several = count == CallCount::kSeveral || (count == CallCount::kOneSection && markup.encloses);
  ExprId more = rules->Literal("");
  if (several && !markup.one_only) {
    const ExprId between = text.Exactly(absl::StrCat(markup.between, markup.encloses ? "" : markup.begin));
    more = rules->Repeat(rules->Sequence({between, call}), 0);
  }
  return {std::string(markup.begin),
          rules->Sequence({text.Exactly(markup.open), call, more, text.Exactly(markup.close)})};
}

}  // namespace

bool CallsCanBeBound(OutputFormat format) {
  return std::any_of(std::begin(kCallMarkups), std::end(kCallMarkups),
                     [format](const CallMarkup& markup) { return markup.format == format; });
}

absl::StatusOr<std::vector<MarkedCalls>> AddCalls(OutputFormat format, absl::Span<const CallableTool> tools,
                                                  CallCount count, const FormatText& text, GrammarRules* rules) {
  std::vector<MarkedCalls> calls;
  std::optional<ExprId> call;  // forms of one format differ in what is around it
  for (const CallMarkup& markup : kCallMarkups) {
    if (markup.format != format) continue;
    if (!call.has_value()) {
      ASSIGN_OR_RETURN(call, AddCall(markup, tools, text, rules));
    }
    calls.push_back(CallsIn(markup, *call, count, text, rules));
  }
  if (!calls.empty()) return calls;
  return absl::UnimplementedError(absl::StrCat("calls in the output format '", OutputFormatName(format),
                                               "' cannot be held to a form; leave the choice of tools to the model"));
}

}  // namespace stagecoach
