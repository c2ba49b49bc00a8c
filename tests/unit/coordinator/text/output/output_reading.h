#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_OUTPUT_READING_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_OUTPUT_READING_H_

// Reads outputs of models in one piece and in many, for tests.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/text/output/output_parser.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitizers.h"

namespace stagecoach {

struct OutputCase {
  OutputFormat format;
  std::string prompt_end;
  std::string raw;
  std::shared_ptr<const OutputTools> tools;
  bool has_form = false;
};

inline void Join(const std::vector<OutputDelta>& fresh, std::vector<OutputDelta>* all) {
  for (const OutputDelta& delta : fresh) {
    EXPECT_EQ(delta.text.empty(), delta.kind == OutputKind::kCallEnd);
    AppendDelta(delta, all);
  }
}

inline constexpr size_t kShort = testing::kSanitized ? 40 : 64;

// Two functions: look_up(place: string, days: integer, note: string or null) and stop().
inline std::shared_ptr<const OutputTools> SomeTools() {
  return std::make_shared<const OutputTools>(Json::parse(R"([
      {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
          "place": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]}}}}},
      {"type": "function", "function": {"name": "stop"}}])"));
}

// What came out of the pieces, deltas of one kind put together where they stand side by side.
inline std::vector<OutputDelta> ParsePieces(const OutputCase& output, const std::vector<std::string>& pieces) {
  const std::unique_ptr<OutputParser> parser = OutputParser::Make(
      output.format, {.prompt_end = output.prompt_end, .content_has_form = output.has_form}, output.tools);
  std::vector<OutputDelta> all;
  for (const std::string& piece : pieces) Join(parser->Feed(piece), &all);
  Join(parser->Finish(), &all);
  EXPECT_EQ(parser->held_bytes(), 0);
  return all;
}

inline std::vector<OutputDelta> ParseWhole(const OutputCase& output) { return ParsePieces(output, {output.raw}); }

// "R(..) C(..) look_up[id]{..}"
inline std::string Summary(const std::vector<OutputDelta>& deltas) {
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

// The whole, byte by byte, cut at every place, and short texts cut at every two places: the first cut that makes a
// difference, or nothing.
inline std::string CutThatMatters(const OutputCase& output) {
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

inline std::string Read(OutputFormat format, const std::string& prompt_end, const std::string& raw,
                        bool with_tools = true, bool has_form = false) {
  const OutputCase output{format, prompt_end, raw, with_tools ? SomeTools() : nullptr, has_form};
  EXPECT_EQ(CutThatMatters(output), "") << raw;
  return Summary(ParseWhole(output));
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TEXT_OUTPUT_OUTPUT_READING_H_
