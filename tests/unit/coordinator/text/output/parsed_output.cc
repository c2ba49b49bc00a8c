#include "parsed_output.h"

#include "common/json/json_value.h"
#include "tests/testing/sanitizers.h"

namespace stagecoach {
namespace {

void Join(const std::vector<OutputDelta>& fresh, std::vector<OutputDelta>* all) {
  for (const OutputDelta& delta : fresh) {
    const bool is_text = delta.kind == OutputKind::kReasoning || delta.kind == OutputKind::kContent;
    EXPECT_EQ(delta.text.empty(), delta.kind == OutputKind::kCallEnd);
    if (is_text && !all->empty() && all->back().kind == delta.kind) {
      all->back().text += delta.text;
    } else {
      all->push_back(delta);
    }
  }
}

constexpr size_t kShort = testing::kSanitized ? 40 : 64;

}  // namespace

std::shared_ptr<const OutputTools> SomeTools() {
  return std::make_shared<const OutputTools>(Json::parse(R"([
      {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
          "place": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]}}}}},
      {"type": "function", "function": {"name": "stop"}}])"));
}

std::vector<OutputDelta> ParsePieces(const OutputCase& output, const std::vector<std::string>& pieces) {
  const std::unique_ptr<OutputParser> parser =
      OutputParser::Make(output.format, {.prompt_end = output.prompt_end}, output.tools);
  std::vector<OutputDelta> all;
  for (const std::string& piece : pieces) Join(parser->Feed(piece), &all);
  Join(parser->Finish(), &all);
  EXPECT_EQ(parser->held_bytes(), 0);
  return all;
}

std::vector<OutputDelta> ParseWhole(const OutputCase& output) { return ParsePieces(output, {output.raw}); }

std::string CutThatMatters(const OutputCase& output) {
  const std::vector<OutputDelta> whole = ParseWhole(output);
  const std::string& raw = output.raw;
  const auto differs = [&](const std::vector<std::string>& pieces) { return ParsePieces(output, pieces) != whole; };
  std::vector<std::string> bytes;
  for (const char byte : raw) bytes.emplace_back(1, byte);
  if (differs(bytes)) return "byte by byte: " + Summary(ParsePieces(output, bytes));
  for (size_t first = 0; first < raw.size(); ++first) {
    if (differs({raw.substr(0, first), raw.substr(first)})) return absl::StrCat("at ", first);
    for (size_t second = first + 1; raw.size() <= kShort && second < raw.size(); ++second) {
      if (differs({raw.substr(0, first), raw.substr(first, second - first), raw.substr(second)})) {
        return absl::StrCat("at ", first, " and ", second);
      }
    }
  }
  return "";
}

std::string Summary(const std::vector<OutputDelta>& deltas) {
  std::string summary;
  for (const OutputDelta& delta : deltas) {
    if (!summary.empty() && delta.kind < OutputKind::kCallArguments) summary += " ";
    switch (delta.kind) {
      case OutputKind::kReasoning: absl::StrAppend(&summary, "R(", delta.text, ")"); break;
      case OutputKind::kContent: absl::StrAppend(&summary, "C(", delta.text, ")"); break;
      case OutputKind::kCallStart: absl::StrAppend(&summary, delta.text, "[", delta.call_id, "]"); break;
      case OutputKind::kCallArguments: summary += delta.text; break;
      case OutputKind::kCallEnd: break;
    }
  }
  return summary;
}

}  // namespace stagecoach
