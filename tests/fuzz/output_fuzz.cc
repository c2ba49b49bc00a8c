// Outputs of models: how they are cut makes no difference, arguments of short ones are JSON, and reading costs little.

#include <random>

#include "common/json/json_value.h"
#include "coordinator/text/output/output_parser.h"
#include "tests/fuzz/fuzz_input.h"

namespace stagecoach {
namespace {

std::vector<OutputDelta> Joined(std::vector<OutputDelta> fresh, std::vector<OutputDelta> all) {
  for (OutputDelta& delta : fresh) {
    FuzzCheck(delta.text.empty() == (delta.kind == OutputKind::kCallEnd), "only the end of a call has no text");
    AppendDelta(std::move(delta), &all);
  }
  return all;
}

// In pieces of up to `most` bytes.
std::vector<OutputDelta> Parse(OutputFormat format, const OutputStart& start, std::shared_ptr<const OutputTools> tools,
                               absl::string_view text, size_t most) {
  const std::unique_ptr<OutputParser> parser = OutputParser::Make(format, start, std::move(tools));
  std::vector<OutputDelta> deltas;
  std::minstd_rand random(static_cast<unsigned>(text.size()));
  for (size_t begin = 0; begin < text.size();) {
    const size_t bytes = most == text.size() ? most : 1 + random() % most;
    deltas = Joined(parser->Feed(text.substr(begin, bytes)), std::move(deltas));
    begin += bytes;
  }
  deltas = Joined(parser->Finish(), std::move(deltas));
  FuzzCheck(parser->held_bytes() == 0, "nothing is held back at the end");
  // A name that is looked for once more with every byte, and white space before it.
  FuzzCheck(parser->scanned_bytes() <= 4 * 512 * (text.size() + 1), "what it costs is linear");
  return deltas;
}

// The kinds of deltas follow each other as calls have it.
void CheckOrder(const std::vector<OutputDelta>& deltas) {
  bool in_call = false;
  for (const OutputDelta& delta : deltas) {
    const bool of_call = delta.kind == OutputKind::kCallArguments || delta.kind == OutputKind::kCallEnd;
    FuzzCheck(in_call == of_call, "arguments and the end of a call are inside one");
    in_call = delta.kind == OutputKind::kCallStart || delta.kind == OutputKind::kCallArguments;
  }
  FuzzCheck(!in_call, "every call ends");
}

}  // namespace

void Fuzz(FuzzInput input) {
  static const auto kTools = std::make_shared<const OutputTools>(Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])"));
  static const std::vector<absl::string_view> kNames = OutputFormatNames();
  const OutputFormat format = *OutputFormatByName(kNames[input.Byte() % kNames.size()]);
  const uint8_t flags = input.Byte();
  const OutputStart start{.prompt_end = (flags & 1) != 0 ? "<think>" : "",
                          .inside_reasoning = (flags & 2) != 0,
                          .content_has_form = (flags & 8) != 0};
  const std::shared_ptr<const OutputTools> tools = (flags & 4) != 0 ? nullptr : kTools;
  const absl::string_view text = input.rest();
  const std::vector<OutputDelta> whole = Parse(format, start, tools, text, text.size());
  for (const size_t most : {1, 1 + flags / 8, 600}) {
    FuzzCheck(Parse(format, start, tools, text, most) == whole, "how a text is cut makes no difference");
  }
  CheckOrder(whole);
  size_t bytes = 0;
  for (const OutputDelta& delta : whole) {
    const bool is_text = delta.kind == OutputKind::kReasoning || delta.kind == OutputKind::kContent;
    if (is_text) bytes += delta.text.size();
    // A longer one may be broken.
    if (delta.kind != OutputKind::kCallArguments || text.size() >= OutputParser::kTrialBytes) continue;
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
