#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "coordinator/text/output/json_text.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

// Calls in JSON.

// Some models write the object as a string, some null where there are no arguments.
std::optional<std::string> ArgumentsOf(absl::string_view value) {
  if (value == "null") return "{}";
  std::string text(value);
  if (value[0] == '"') text = std::string(WithoutSpaceAround(JsonStringValue(value).value_or("")));
  if (text[0] != '{' || !IsJson(text, CallScanner::kMostDepth)) return std::nullopt;
  return text;
}

Calls SingleCall(std::string name, absl::string_view arguments, std::string id, CallScanner* scanner) {
  if (name.empty()) scanner->Fail();
  if (!scanner->ok()) return {};
  return {{std::move(name), std::string(arguments), std::move(id)}};
}

absl::string_view ReadJsonObject(CallScanner* scanner) {
  scanner->SkipSpace();
  if (scanner->Peek() != '{') scanner->Fail();
  return scanner->JsonValue();
}

// A message that is JSON can be an answer as well, and its text is to leave as soon as that is known.
void ExpectKeyOfCall(absl::string_view object, CallScanner* scanner) {
  CallScanner ahead(object, /*at_end=*/false);
  ahead.Next();
  ahead.SkipSpace();
  ahead.Expect("\"");
  const absl::string_view key = ahead.Until("\"");
  if (ahead.Result({}).state == CallReading::State::kMore) return;
  if (!ahead.ok() || (key != "name" && key != "type" && key != "parameters" && key != "arguments")) scanner->Fail();
}

// Of the names of functions and arguments.
bool IsNameByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' ||
         byte == '-' || byte == '.';
}

// Of one object; absent when it is no call.
std::optional<ToolCall> CallOfJson(absl::string_view object) {
  if (object[0] != '{') return std::nullopt;
  ToolCall call{.arguments = "{}"};
  for (const JsonMember& member : JsonMembers(object)) {
    if (member.key == "name" || member.key == "tool_name") {
      call.name = JsonStringValue(member.value).value_or("");
    } else if (member.key == "arguments" || member.key == "parameters") {
      std::optional<std::string> arguments = ArgumentsOf(member.value);
      if (!arguments.has_value()) return std::nullopt;
      call.arguments = *std::move(arguments);
    } else if (member.key == "id" || member.key == "tool_call_id") {
      call.id = JsonStringValue(member.value).value_or("");
    }
  }
  if (call.name.empty()) return std::nullopt;
  return call;
}

// Calls whose arguments have tags of their own.

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
Calls CallWithArguments(absl::string_view name, const std::vector<Argument>& arguments, const OutputTools& tools,
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
bool HasArgument(absl::string_view end, const std::vector<Argument>& arguments, CallScanner* scanner) {
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

// Values in a language of their own: Python's, Gemma's.

constexpr int kMostMembers = 1'024;  // of an object: each is looked for among all

bool IsNumberByte(char byte) { return (byte >= '0' && byte <= '9') || byte == '-' || byte == '+' || byte == '.'; }
bool IsWordByte(char byte) {
  return IsNumberByte(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// true, None, -1.5e3
std::string ReadWord(CallScanner* scanner) {
  const absl::string_view word = scanner->While(IsWordByte);
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (!IsJson(word, 1)) scanner->Fail();
  return std::string(word);
}

void AppendCodePoint(uint32_t code_point, std::string* out) {
  // As JSON's own escape, which JsonStringValue reads: surrogates find each other there.
  absl::StrAppend(out, "\\u", absl::Hex(code_point, absl::kZeroPad4));
}

// The digits of \xNN and \uNNNN.
uint32_t ReadHex(int digits, CallScanner* scanner) {
  uint32_t value = 0;
  for (; digits > 0; --digits) {
    const char digit = scanner->Next();
    const size_t index = absl::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
    if (index == absl::string_view::npos || digit < '0') scanner->Fail();
    value = value * 16 + static_cast<uint32_t>(index & 0xF);
  }
  return value;
}

// What follows a backslash in a string of Python, as it is written in JSON.
void ReadEscape(CallScanner* scanner, std::string* json) {
  constexpr absl::string_view kAsInJson = "ntrbf\"/\\";
  const char escape = scanner->Next();
  if (kAsInJson.find(escape) != absl::string_view::npos) {
    absl::StrAppend(json, "\\", absl::string_view(&escape, 1));
    return;
  }
  switch (escape) {
    case '\'': json->push_back('\''); break;
    case '\n': break;  // a line that goes on
    case 'x': AppendCodePoint(ReadHex(2, scanner), json); break;
    case 'u': AppendCodePoint(ReadHex(4, scanner), json); break;
    case '0': AppendCodePoint(0, json); break;
    default:  // Python keeps what it does not know
      json->append("\\\\");
      json->push_back(escape);
  }
}

std::string ReadPythonString(CallScanner* scanner) {
  const char quote = scanner->Next();
  std::string json = "\"";
  for (char next = scanner->Next(); scanner->ok() && next != quote; next = scanner->Next()) {
    if (next == '\\') {
      ReadEscape(scanner, &json);
    } else if (next == '"') {
      json += "\\\"";
    } else if (static_cast<unsigned char>(next) < 0x20) {
      AppendCodePoint(static_cast<unsigned char>(next), &json);
    } else {
      json.push_back(next);
    }
  }
  json.push_back('"');
  if (scanner->ok() && !IsJson(json, 1)) scanner->Fail();  // half a surrogate pair, no UTF-8
  return json;
}

// The two languages differ in their strings and in how the keys of objects are written.
class LiteralReader {
 public:
  explicit LiteralReader(CallScanner* scanner) : scanner_(scanner) {}
  virtual ~LiteralReader() = default;

  std::string ReadValue(int depth) {
    if (depth > CallScanner::kMostDepth) scanner_->Fail();
    if (!scanner_->ok()) return "";
    if (AtString()) return ReadString();
    if (scanner_->Try("{")) return ReadObject("}", depth);
    if (scanner_->Try("[")) return ReadList(depth);
    return ReadWord(scanner_);
  }

  // The opening mark has been read.
  std::string ReadObject(absl::string_view close, int depth) {
    JsonObjectText object;
    for (int members = 0; !Closes(close, members); ++members) {
      const std::string key = ReadKey();
      scanner_->SkipSpace();
      std::string value = ReadValue(depth + 1);
      if (members > kMostMembers) scanner_->Fail();
      if (scanner_->ok()) object.Set(key, std::move(value));
    }
    return scanner_->ok() ? object.Text() : "";
  }

 protected:
  virtual bool AtString() = 0;
  virtual std::string ReadString() = 0;  // as JSON
  virtual std::string ReadKey() = 0;     // with what stands between it and the value

  CallScanner* const scanner_;

 private:
  // Reads the comma before a further element, or the closing mark. True as well when reading has failed.
  bool Closes(absl::string_view close, int elements) {
    scanner_->SkipSpace();
    if (scanner_->Try(close)) return true;
    if (elements > 0) {
      scanner_->Expect(",");
      scanner_->SkipSpace();
      if (scanner_->Try(close)) return true;
    }
    return !scanner_->ok();
  }

  std::string ReadList(int depth) {
    std::string list = "[";
    for (int elements = 0; !Closes("]", elements); ++elements) {
      absl::StrAppend(&list, elements > 0 ? ", " : "", ReadValue(depth + 1));
    }
    return list + "]";
  }
};

class PythonReader : public LiteralReader {
 public:
  using LiteralReader::LiteralReader;

 protected:
  bool AtString() override {
    const char next = scanner_->Peek();
    return next == '"' || next == '\'';
  }
  std::string ReadString() override { return ReadPythonString(scanner_); }
  std::string ReadKey() override {
    std::string key = AtString() ? JsonStringValue(ReadString()).value_or("") : "";
    scanner_->SkipSpace();
    scanner_->Expect(":");
    return key;
  }
};

class GemmaReader : public LiteralReader {
 public:
  using LiteralReader::LiteralReader;

 protected:
  bool AtString() override { return scanner_->Peek() == '<'; }
  std::string ReadString() override { return JsonString(ReadText()); }
  std::string ReadKey() override {
    if (!AtString()) return std::string(scanner_->HeadUntil(":"));
    std::string key(ReadText());
    scanner_->SkipSpace();
    scanner_->Expect(":");
    return key;
  }

 private:
  absl::string_view ReadText() {
    scanner_->Expect("<|\"|>");
    return scanner_->Until("<|\"|>");
  }
};

// What follows "F(" up to ")", as an object's text.
std::string ReadPythonArguments(CallScanner* scanner) {
  JsonObjectText object;
  for (int members = 0; scanner->ok(); ++members) {
    scanner->SkipSpace();
    if (scanner->Try(")")) return object.Text();
    if (members > 0) {
      scanner->Expect(",");
      scanner->SkipSpace();
    }
    if (members > kMostMembers) scanner->Fail();
    const std::string key(scanner->While(IsNameByte));
    scanner->SkipSpace();
    scanner->Expect("=");
    scanner->SkipSpace();
    object.Set(key, PythonReader(scanner).ReadValue(1));
  }
  return "";
}

Calls ReadDeepseek(bool in_fence, CallScanner* scanner) {
  scanner->Try("<｜tool▁calls▁begin｜>");
  scanner->SkipSpace();
  scanner->Expect("<｜tool▁call▁begin｜>");
  absl::string_view name = scanner->HeadUntil("<｜tool▁sep｜>");  // "function" before a fence
  if (in_fence) name = scanner->HeadUntil("```json");
  const absl::string_view arguments = ReadJsonObject(scanner);
  if (in_fence) scanner->TryAfterSpace("```");
  scanner->TryAfterSpace("<｜tool▁call▁end｜>");
  return SingleCall(std::string(name), arguments, "", scanner);
}

}  // namespace

Calls ReadMarkedJson(absl::string_view open, absl::string_view close, CallScanner* scanner) {
  scanner->Expect(open);
  scanner->SkipSpace();
  const absl::string_view value = scanner->JsonValue();
  if (!scanner->ok()) return {};
  Calls calls;
  for (const absl::string_view element : value[0] == '[' ? JsonElements(value) : std::vector{value}) {
    std::optional<ToolCall> call = CallOfJson(element);
    if (!call.has_value()) {
      scanner->Fail();
      return {};
    }
    calls.push_back(*std::move(call));
  }
  if (calls.empty()) scanner->Fail();
  if (!close.empty()) scanner->TryAfterSpace(close);
  return calls;
}

Calls ReadDeepseekV31(const OutputTools&, CallScanner* scanner) { return ReadDeepseek(/*in_fence=*/false, scanner); }
Calls ReadDeepseekR1(const OutputTools&, CallScanner* scanner) { return ReadDeepseek(/*in_fence=*/true, scanner); }

// The id is "functions.NAME:INDEX".
Calls ReadKimi(const OutputTools&, CallScanner* scanner) {
  scanner->Try("<|tool_calls_section_begin|>");
  scanner->SkipSpace();
  scanner->Expect("<|tool_call_begin|>");
  const absl::string_view id = scanner->HeadUntil("<|tool_call_argument_begin|>");
  const absl::string_view arguments = ReadJsonObject(scanner);
  scanner->TryAfterSpace("<|tool_call_end|>");
  absl::string_view name = id.substr(0, id.rfind(':'));
  if (absl::StartsWith(name, "functions.")) name.remove_prefix(10);
  return SingleCall(std::string(name), arguments, std::string(id), scanner);
}

// NAME[ARGS], in between [CALL_ID] and the id if trained to give one. Such models fall back to the list of older ones.
Calls ReadMistralArgs(const OutputTools&, CallScanner* scanner) {
  constexpr absl::string_view kCallId = "[CALL_ID]";
  CallScanner list = *scanner;
  list.Expect("[TOOL_CALLS]");
  list.SkipSpace();
  if (list.Peek() == '[') return ReadMarkedJson("[TOOL_CALLS]", "", scanner);
  scanner->Expect("[TOOL_CALLS]");
  const absl::string_view head = scanner->HeadUntil("[ARGS]");
  const absl::string_view arguments = ReadJsonObject(scanner);
  const size_t cut = head.find(kCallId);
  std::string id;
  if (cut != absl::string_view::npos) id = std::string(WithoutSpaceAround(head.substr(cut + kCallId.size())));
  return SingleCall(std::string(WithoutSpaceAround(head.substr(0, cut))), arguments, std::move(id), scanner);
}

Calls ReadLlama(const OutputTools& tools, CallScanner* scanner) {
  const bool marked = scanner->Try("<|python_tag|>");
  if (marked) scanner->SkipSpace();
  std::optional<ToolCall> call;
  if (scanner->Peek() == '{') {
    ExpectKeyOfCall(scanner->rest(), scanner);
    const absl::string_view object = scanner->JsonValue();
    if (scanner->ok()) call = CallOfJson(object);
  } else {
    absl::string_view name = scanner->While(IsNameByte);
    scanner->Expect("(");
    std::string arguments = ReadPythonArguments(scanner);
    if (absl::EndsWith(name, ".call")) call = {std::string(name.substr(0, name.size() - 5)), std::move(arguments), ""};
  }
  if (!call.has_value() || !tools.Has(call->name)) scanner->Fail();
  scanner->SkipSpace();
  if (!scanner->AtEnd()) scanner->Fail();
  if (!scanner->ok()) return {};
  return {*std::move(call)};
}

Calls ReadQwenCoder(const OutputTools& tools, CallScanner* scanner) {
  scanner->Try("<tool_call>");
  scanner->SkipSpace();
  scanner->Expect("<function=");
  const absl::string_view name = scanner->HeadUntil(">");
  std::vector<Argument> arguments;
  while (HasArgument("</function>", arguments, scanner)) {
    scanner->Expect("<parameter=");
    const absl::string_view key = scanner->HeadUntil(">");
    arguments.push_back({key, WithoutFormatBreaks(scanner->Until("</parameter>"))});
  }
  scanner->TryAfterSpace("</tool_call>");
  return CallWithArguments(name, arguments, tools, scanner);
}

Calls ReadGlm(const OutputTools& tools, CallScanner* scanner) {
  scanner->Expect("<tool_call>");
  scanner->SkipSpace();
  const absl::string_view name = scanner->While([](char byte) { return byte != '<' && byte != '\n'; });
  std::vector<Argument> arguments;
  while (HasArgument("</tool_call>", arguments, scanner)) {
    scanner->Expect("<arg_key>");
    const absl::string_view key = scanner->HeadUntil("</arg_key>");
    scanner->SkipSpace();
    scanner->Expect("<arg_value>");
    arguments.push_back({key, scanner->Until("</arg_value>")});
  }
  return CallWithArguments(WithoutSpaceAround(name), arguments, tools, scanner);
}

Calls ReadMinimax(const OutputTools& tools, CallScanner* scanner) {
  scanner->Try("<minimax:tool_call>");
  scanner->SkipSpace();
  scanner->Expect("<invoke name=\"");
  const absl::string_view name = scanner->HeadUntil("\"");
  scanner->Expect(">");
  std::vector<Argument> arguments;
  while (HasArgument("</invoke>", arguments, scanner)) {
    scanner->Expect("<parameter name=\"");
    const absl::string_view key = scanner->HeadUntil("\"");
    scanner->Expect(">");
    arguments.push_back({key, scanner->Until("</parameter>")});
  }
  return CallWithArguments(name, arguments, tools, scanner);
}

Calls ReadDeepseekV32(const OutputTools& tools, CallScanner* scanner) {
  if (!scanner->Try("<｜DSML｜function_calls>")) scanner->Try("<｜DSML｜tool_calls>");
  scanner->SkipSpace();
  scanner->Expect("<｜DSML｜invoke name=\"");
  const absl::string_view name = scanner->HeadUntil("\"");
  scanner->Expect(">");
  std::vector<Argument> arguments;
  while (HasArgument("</｜DSML｜invoke>", arguments, scanner)) {
    scanner->Expect("<｜DSML｜parameter name=\"");
    const absl::string_view key = scanner->HeadUntil("\"");
    scanner->Expect(" string=\"");
    const bool is_text = scanner->Try("true");
    if (!is_text) scanner->Expect("false");
    scanner->Expect("\">");
    arguments.push_back({key, scanner->Until("</｜DSML｜parameter>"), is_text});
  }
  return CallWithArguments(name, arguments, tools, scanner);
}

Calls ReadLfm2(const OutputTools&, CallScanner* scanner) {
  constexpr absl::string_view kOpen = "<|tool_call_start|>";
  constexpr absl::string_view kClose = "<|tool_call_end|>";
  CallScanner json = *scanner;
  scanner->Expect(kOpen);
  scanner->SkipSpace();
  scanner->Expect("[");
  scanner->SkipSpace();
  if (scanner->Peek() == '{') {
    *scanner = json;
    return ReadMarkedJson(kOpen, kClose, scanner);
  }
  Calls calls;
  do {
    scanner->SkipSpace();
    std::string name(scanner->While(IsNameByte));
    scanner->Expect("(");
    calls.push_back({std::move(name), ReadPythonArguments(scanner), ""});
    scanner->SkipSpace();
  } while (scanner->Try(","));
  scanner->Expect("]");
  scanner->TryAfterSpace(kClose);
  return calls;
}

Calls ReadGemma4(const OutputTools&, CallScanner* scanner) {
  scanner->Expect("<|tool_call>call:");
  const std::string name(scanner->HeadUntil("{"));
  if (name.empty()) scanner->Fail();
  std::string arguments = GemmaReader(scanner).ReadObject("}", 1);
  scanner->TryAfterSpace("<tool_call|>");
  return {{name, std::move(arguments), ""}};
}

}  // namespace stagecoach
