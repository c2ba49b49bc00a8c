#include <utility>

#include "absl/strings/match.h"
#include "coordinator/text/output/call_readers.h"
#include "coordinator/text/output/json_text.h"
#include "coordinator/text/output/marker_search.h"

namespace stagecoach {
namespace {

// Some models write the object as a string, some null where there are no arguments.
std::optional<std::string> ArgumentsOf(absl::string_view value) {
  if (value == "null") return "{}";
  std::string text(value);
  if (value[0] == '"') text = std::string(WithoutSpaceAround(JsonStringValue(value).value_or("")));
  if (!IsJsonObject(text, CallScanner::kMostDepth)) return std::nullopt;
  return text;
}

Calls One(std::string name, absl::string_view arguments, std::string id, CallScanner* scanner) {
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

}  // namespace

bool IsNameByte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' ||
         byte == '-' || byte == '.';
}

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

Calls ReadDeepseekV31(CallScanner* scanner) {
  scanner->Try("<｜tool▁calls▁begin｜>");
  scanner->SkipSpace();
  scanner->Expect("<｜tool▁call▁begin｜>");
  const absl::string_view name = scanner->HeadUntil("<｜tool▁sep｜>");
  const absl::string_view arguments = ReadJsonObject(scanner);
  scanner->TryAfterSpace("<｜tool▁call▁end｜>");
  return One(std::string(name), arguments, "", scanner);
}

Calls ReadDeepseekR1(CallScanner* scanner) {
  scanner->Try("<｜tool▁calls▁begin｜>");
  scanner->SkipSpace();
  scanner->Expect("<｜tool▁call▁begin｜>");
  scanner->HeadUntil("<｜tool▁sep｜>");  // "function"
  const absl::string_view name = scanner->HeadUntil("```json");
  const absl::string_view arguments = ReadJsonObject(scanner);
  scanner->TryAfterSpace("```");
  scanner->TryAfterSpace("<｜tool▁call▁end｜>");
  return One(std::string(name), arguments, "", scanner);
}

// The id is "functions.NAME:INDEX".
Calls ReadKimi(CallScanner* scanner) {
  scanner->Try("<|tool_calls_section_begin|>");
  scanner->SkipSpace();
  scanner->Expect("<|tool_call_begin|>");
  const absl::string_view id = scanner->HeadUntil("<|tool_call_argument_begin|>");
  const absl::string_view arguments = ReadJsonObject(scanner);
  scanner->TryAfterSpace("<|tool_call_end|>");
  absl::string_view name = id.substr(0, id.rfind(':'));
  if (absl::StartsWith(name, "functions.")) name.remove_prefix(10);
  return One(std::string(name), arguments, std::string(id), scanner);
}

// NAME[ARGS], and in between [CALL_ID] and the id where the model was trained to give one. Models of this kind fall
// back to the list of older ones.
Calls ReadMistralArgs(CallScanner* scanner) {
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
  return One(std::string(WithoutSpaceAround(head.substr(0, cut))), arguments, std::move(id), scanner);
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

}  // namespace stagecoach
