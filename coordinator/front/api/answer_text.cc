#include "coordinator/front/api/answer_text.h"

#include <algorithm>
#include <utility>

#include "coordinator/front/api/token_text.h"

namespace stagecoach {
namespace {

void Append(OutputDelta delta, std::vector<OutputDelta>* deltas) {
  const bool text = delta.kind == OutputKind::kContent || delta.kind == OutputKind::kReasoning;
  if (text && delta.text.empty()) return;
  if (text && !deltas->empty() && deltas->back().kind == delta.kind) {
    deltas->back().text += delta.text;
  } else {
    deltas->push_back(std::move(delta));
  }
}

}  // namespace

AnswerText::AnswerText(const Tokenizer* tokenizer, AnswerTextOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  std::vector<std::string> stops = options_.stops;
  stops.insert(stops.end(), options_.ends.begin(), options_.ends.end());
  if (options_.parser == nullptr) {
    plain_.emplace(tokenizer, std::move(stops), options_.render_control);
  } else {
    parsed_.emplace(tokenizer, std::move(stops), std::move(options_.parser), options_.render_control);
  }
}

const std::string& AnswerText::end_reason() const {
  return plain_.has_value() ? plain_->finish_reason() : parsed_->finish_reason();
}
const std::vector<SampledToken>& AnswerText::tokens() const {
  return plain_.has_value() ? plain_->tokens() : parsed_->tokens();
}
std::string AnswerText::finish_reason() const { return end_reason() == "stop" ? "stop" : "length"; }
bool AnswerText::stopped_by_text() const {
  return plain_.has_value() ? plain_->stopped_by_text() : parsed_->stopped_by_text();
}
const std::string& AnswerText::rejection() const {
  return plain_.has_value() ? plain_->rejection() : parsed_->rejection();
}
int64_t AnswerText::sampled_tokens() const {
  return static_cast<int64_t>(tokens().size()) + (stop_token_.has_value() ? 1 : 0);
}
int64_t AnswerText::reasoning_tokens() const { return parsed_.has_value() ? parsed_->reasoning_tokens() : 0; }

void AnswerText::Feed(const SessionEvent& event, std::vector<OutputDelta>* deltas) {
  if (plain_.has_value()) {
    Append({OutputKind::kContent, plain_->Take(event), ""}, deltas);
  } else {
    for (OutputDelta& delta : parsed_->Take(event)) Append(std::move(delta), deltas);
  }
  if (StopIsText()) Append({OutputKind::kContent, stop_string(), ""}, deltas);
}

const std::string& AnswerText::stop_string() const {
  return plain_.has_value() ? plain_->stop_string() : parsed_->stop_string();
}

bool AnswerText::StopIsText() const {
  return stopped_by_text() && options_.include_stop &&
         std::find(options_.ends.begin(), options_.ends.end(), stop_string()) == options_.ends.end();
}

AnswerPiece AnswerText::Take(const SessionEvent& event) {
  AnswerPiece piece;
  for (const SampledToken& token : event.tokens) {
    if (finished() || stop_token_.has_value()) break;
    if (std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token.token) !=
        options_.stop_tokens.end()) {
      stop_token_ = token;
      break;
    }
    SessionEvent one;
    one.tokens.push_back(token);
    Feed(one, &piece.deltas);
  }
  if (!finished() && event.finished.has_value()) {
    SessionEvent end;
    end.finished = event.finished;
    Feed(end, &piece.deltas);
  }
  for (const OutputDelta& delta : piece.deltas) code_points_ += CodePoints(delta.text);
  if (options_.list_tokens) ListTokens(&piece.tokens);
  return piece;
}

size_t AnswerText::ReleasedTokens() const {
  size_t all = tokens().size();
  if (finished()) {
    const bool without_last = end_reason() == "stop" && !stop_token_.has_value() && !StopIsText() && !options_.list_end;
    return without_last && all > listed_ ? all - 1 : all;
  }
  // One that ends the answer waits until the session says that it did.
  if (all > listed_ && IsEndOfGeneration(*tokenizer_, tokens().back().token)) --all;
  return std::min(parsed_.has_value() ? parsed_->released_tokens() : plain_->released_tokens(), all);
}

void AnswerText::ListTokens(std::vector<ListedToken>* out) {
  const size_t released = ReleasedTokens();
  const std::vector<int64_t>& offsets = plain_.has_value() ? plain_->text_offsets() : parsed_->text_offsets();
  for (; listed_ < released; ++listed_) List(tokens()[listed_], offsets[listed_], out);
  if (finished() && stop_token_.has_value() && options_.list_end) {
    List(*stop_token_, plain_.has_value() ? plain_->code_points() : code_points_, out);
  }
}

void AnswerText::List(const SampledToken& token, int64_t offset, std::vector<ListedToken>* out) const {
  out->push_back({token.token, token.logprob, token.top, options_.first_offset + offset});
}

}  // namespace stagecoach
