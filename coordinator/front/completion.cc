#include "coordinator/front/completion.h"

#include <algorithm>
#include <utility>

#include "coordinator/front/answer_end.h"

namespace stagecoach {
namespace {

int64_t CodePoints(const std::string& utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

}  // namespace

// The prompt came before: a leading space is part of the answer.
Completion::Completion(const Tokenizer* tokenizer, std::vector<std::string> stops, bool render_control)
    : tokenizer_(tokenizer),
      detokenizer_(tokenizer, /*at_text_start=*/false, render_control),
      matcher_(std::move(stops)) {}

bool Completion::IsEndOfGeneration(TokenId token) const { return stagecoach::IsEndOfGeneration(*tokenizer_, token); }

std::string Completion::Append(std::string text) {
  text_ += text;
  return text;
}

std::string Completion::Take(const SessionEvent& event) {
  if (finished()) return "";
  std::string fresh;
  for (const SampledToken& token : event.tokens) {
    tokens_.push_back(token);
    text_offsets_.push_back(code_points_);
    if (!IsEndOfGeneration(token.token)) {  // never printed, even where it has a printable text
      const std::string piece = detokenizer_.Push(token.token);
      fed_bytes_ += piece.size();
      code_points_ += CodePoints(piece);
      fresh += matcher_.Push(piece);
    }
    ends_in_bytes_.push_back(fed_bytes_ + detokenizer_.held_bytes());
    if (matcher_.stopped()) break;
  }
  if (matcher_.stopped()) {
    finish_reason_ = "stop";
  } else if (event.finished.has_value()) {
    // What the detokenizer still holds can complete a stop string as well.
    fresh += matcher_.Push(detokenizer_.Flush());
    fresh += matcher_.Flush();
    AnswerEnd end = EndOfAnswer(*event.finished);
    finish_reason_ = std::move(end.reason);
    rejection_ = std::move(end.rejection);
    failed_ = end.failed;
    if (matcher_.stopped()) finish_reason_ = "stop";
  }
  CountReleased();
  return Append(std::move(fresh));
}

void Completion::CountReleased() {
  while (released_tokens_ < tokens_.size() &&
         (finished() || ends_in_bytes_[released_tokens_] + matcher_.held_bytes() <= fed_bytes_)) {
    ++released_tokens_;
  }
}

std::string Completion::Abandon() {
  if (finished()) return "";
  finish_reason_ = "cancelled";
  CountReleased();
  std::string fresh = matcher_.Push(detokenizer_.Flush());
  fresh += matcher_.Flush();
  return Append(std::move(fresh));
}

}  // namespace stagecoach
