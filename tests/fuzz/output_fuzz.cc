// Outputs of models: how they are cut makes no difference, and arguments are JSON.

#include "common/json/json_value.h"
#include "coordinator/text/output/output_parser.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {
namespace {

std::vector<OutputDelta> Joined(std::vector<OutputDelta> fresh, std::vector<OutputDelta> all) {
  for (OutputDelta& delta : fresh) {
    const bool is_text = delta.kind == OutputKind::kReasoning || delta.kind == OutputKind::kContent;
    FuzzCheck(delta.text.empty() == (delta.kind == OutputKind::kCallEnd), "only the end of a call has no text");
    if (is_text && !all.empty() && all.back().kind == delta.kind) {
      all.back().text += delta.text;
    } else {
      all.push_back(std::move(delta));
    }
  }
  return all;
}

std::vector<OutputDelta> Parse(OutputFormat format, const OutputStart& start, std::shared_ptr<const OutputTools> tools,
                               absl::string_view text, size_t piece) {
  const std::unique_ptr<OutputParser> parser = OutputParser::Make(format, start, std::move(tools));
  std::vector<OutputDelta> deltas;
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    deltas = Joined(parser->Feed(text.substr(begin, piece)), std::move(deltas));
  }
  deltas = Joined(parser->Finish(), std::move(deltas));
  FuzzCheck(parser->held_bytes() == 0, "nothing is held back at the end");
  return deltas;
}

}  // namespace

void Fuzz(FuzzInput input) {
  static const auto kTools = std::make_shared<const OutputTools>(Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])"));
  static const std::vector<absl::string_view> kNames = OutputFormatNames();
  const OutputFormat format = *OutputFormatByName(kNames[input.Byte() % kNames.size()]);
  const uint8_t flags = input.Byte();
  const OutputStart start{.prompt_end = (flags & 1) != 0 ? "<think>" : "", .inside_reasoning = (flags & 2) != 0};
  const std::shared_ptr<const OutputTools> tools = (flags & 4) != 0 ? nullptr : kTools;
  const absl::string_view text = input.rest();
  const std::vector<OutputDelta> whole = Parse(format, start, tools, text, text.size());
  FuzzCheck(Parse(format, start, tools, text, 1 + flags / 8) == whole, "how a text is cut makes no difference");
  size_t bytes = 0;
  for (const OutputDelta& delta : whole) {
    const bool is_text = delta.kind == OutputKind::kReasoning || delta.kind == OutputKind::kContent;
    if (is_text) bytes += delta.text.size();
    if (delta.kind != OutputKind::kCallArguments) continue;
    FuzzCheck(nlohmann::json::parse(delta.text, nullptr, /*allow_exceptions=*/false).is_object(),
              "arguments are an object: " + delta.text);
  }
  FuzzCheck(bytes <= text.size(), "nothing comes twice");
  const std::unique_ptr<OutputParser> parser = OutputParser::Make(format, start, tools);
  std::vector<OutputDelta> of_control = parser->FeedControl(text.substr(0, text.size() / 2));
  of_control = Joined(parser->FeedControl(text.substr(text.size() / 2)), std::move(of_control));
  for (const OutputDelta& delta : Joined(parser->Finish(), std::move(of_control))) {
    FuzzCheck(delta.kind != OutputKind::kReasoning && delta.kind != OutputKind::kContent, "control tokens are no text");
  }
  // Between pieces of text: no more comes out as text than was fed as text.
  const std::unique_ptr<OutputParser> mixed_parser = OutputParser::Make(format, start, tools);
  const size_t step = 1 + flags / 8;
  std::vector<OutputDelta> mixed;
  size_t fed = 0, came = 0;
  bool control = false;
  for (size_t at = 0; at < text.size(); at += step, control = !control) {
    const absl::string_view piece = absl::string_view(text).substr(at, step);
    if (!control) fed += piece.size();
    mixed = Joined(control ? mixed_parser->FeedControl(piece) : mixed_parser->Feed(piece), std::move(mixed));
  }
  for (const OutputDelta& delta : Joined(mixed_parser->Finish(), std::move(mixed))) {
    if (delta.kind == OutputKind::kReasoning || delta.kind == OutputKind::kContent) came += delta.text.size();
  }
  FuzzCheck(came <= fed, "control tokens between texts are no text");
}

}  // namespace stagecoach
