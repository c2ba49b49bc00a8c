#include "coordinator/front/parsed_completion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/strip.h"

namespace stagecoach {
namespace {

int64_t CodePointsOf(absl::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

}  // namespace

// The prompt came before: a leading space is part of the answer.
ParsedCompletion::ParsedCompletion(const Tokenizer* tokenizer, std::vector<std::string> stops,
                                   std::unique_ptr<OutputParser> parser, bool render_control)
    : tokenizer_(tokenizer),
      render_control_(render_control),
      detokenizer_(tokenizer, /*at_text_start=*/false, /*render_control=*/true),
      parser_(std::move(parser)),
      matcher_(std::move(stops)) {}

std::vector<OutputDelta> ParsedCompletion::Take(const SessionEvent& event) {
  Deltas out;
  if (finished()) return out;
  for (const SampledToken& token : event.tokens) {
    tokens_.push_back(token);
    text_offsets_.push_back(code_points_);
    if (!IsEndOfGeneration(*tokenizer_, token.token)) PushToken(token.token, &out);
    ends_in_bytes_.push_back(fed_bytes_ + detokenizer_.held_bytes());
    if (matcher_.stopped()) break;
  }
  if (!matcher_.stopped() && event.finished.has_value()) {
    PushEnd(&out);
    end_ = EndOfAnswer(*event.finished);
  }
  if (matcher_.stopped()) end_.reason = "stop";
  CountReleased();
  return out;
}

std::vector<OutputDelta> ParsedCompletion::Abandon() {
  Deltas out;
  if (finished()) return out;
  PushEnd(&out);
  end_ = {.reason = "cancelled"};
  CountReleased();
  return out;
}

void ParsedCompletion::PushToken(TokenId token, Deltas* out) {
  const bool inside = parser_->inside_reasoning();
  const std::string text = detokenizer_.Push(token);
  absl::string_view before = text;
  const std::string own = tokenizer_->TokenBytes(token, /*render_control=*/true);
  const bool is_control = !own.empty() && tokenizer_->TokenBytes(token, /*render_control=*/false).empty();
  // What was held back of other tokens comes with it.
  if (is_control && !render_control_ && absl::ConsumeSuffix(&before, own)) {
    PushText(before, out);
    PushText(own, out, /*control=*/true);
    dropped_bytes_ += own.size();
  } else {
    PushText(text, out);
  }
  if (inside && parser_->inside_reasoning()) ++reasoning_tokens_;
}

void ParsedCompletion::PushText(absl::string_view text, Deltas* out, bool control) {
  fed_bytes_ += text.size();
  code_points_ += CodePointsOf(text);
  Pass(control ? parser_->FeedControl(text) : parser_->Feed(text), out);
}

// What the detokenizer still holds can complete a stop string as well.
void ParsedCompletion::PushEnd(Deltas* out) {
  PushText(detokenizer_.Flush(), out);
  Pass(parser_->Finish(), out);
  if (!matcher_.stopped()) PutOut(OutputKind::kContent, matcher_.Flush(), out);
}

void ParsedCompletion::Pass(Deltas parsed, Deltas* out) {
  for (OutputDelta& delta : parsed) {
    if (matcher_.stopped()) return;
    if (delta.kind == OutputKind::kContent) {
      PutOut(OutputKind::kContent, matcher_.Push(delta.text), out);
      continue;
    }
    // A stop string does not reach over what stands between two stretches of content.
    PutOut(OutputKind::kContent, matcher_.Flush(), out);
    if (delta.kind == OutputKind::kReasoning) {
      PutOut(OutputKind::kReasoning, std::move(delta.text), out);
      continue;
    }
    if (delta.kind == OutputKind::kCallEnd) ++calls_;
    out->push_back(std::move(delta));
  }
}

void ParsedCompletion::PutOut(OutputKind kind, std::string text, Deltas* out) {
  if (text.empty()) return;
  if (!out->empty() && out->back().kind == kind) {
    out->back().text += text;
  } else {
    out->push_back({kind, std::move(text), ""});
  }
}

void ParsedCompletion::CountReleased() {
  if (matcher_.held_bytes() == 0) dropped_bytes_ = 0;
  const uint64_t held = parser_->held_bytes() + matcher_.held_bytes() + dropped_bytes_;
  while (released_tokens_ < tokens_.size() && (finished() || ends_in_bytes_[released_tokens_] + held <= fed_bytes_)) {
    ++released_tokens_;
  }
}

}  // namespace stagecoach
