#include "coordinator/answer/answer.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/strip.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

std::vector<std::string> AllStops(const AnswerOptions& options) {
  std::vector<std::string> stops = options.stops;
  stops.insert(stops.end(), options.ends.begin(), options.ends.end());
  return stops;
}

std::string ReasonOf(pb::RequestFinished::Reason reason) {
  switch (reason) {
    case pb::RequestFinished::REASON_STOP: return "stop";
    case pb::RequestFinished::REASON_LENGTH:
    case pb::RequestFinished::REASON_SCORED: return "length";
    default: return "cancelled";
  }
}

}  // namespace

// The prompt came before: a leading space is part of the answer.
Answer::Answer(const Tokenizer* tokenizer, AnswerOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      detokenizer_(tokenizer, /*at_text_start=*/false, options_.render_control || options_.parser != nullptr),
      matcher_(AllStops(options_)) {}

bool Answer::Ends(TokenId token) const {
  return IsEndOfGeneration(*tokenizer_, token) || absl::c_linear_search(options_.stop_tokens, token);
}

std::vector<OutputDelta> Answer::Take(const SessionEvent& event) {
  Deltas out;
  if (finished()) return out;
  for (const SampledToken& token : event.tokens) {
    if (NeedsNoMore() || stop_token_) break;
    stop_token_ = absl::c_linear_search(options_.stop_tokens, token.token);
    tokens_.push_back(token);
    text_offsets_.push_back(code_points_);
    if (!Ends(token.token)) PushToken(token.token, &out);
    ends_in_bytes_.push_back(fed_bytes_ + detokenizer_.held_bytes());
    CountReleased();  // after each token: how events are cut makes no difference
  }
  const bool needs_no_more = NeedsNoMore();
  if (!needs_no_more && event.finished.has_value()) {
    PushEnd(&out);
    const pb::RequestFinished& finished = *event.finished;
    finish_reason_ = ReasonOf(finished.reason());
    ends_by_last_ = finish_reason_ == "stop";
    failed_ = finished.reason() == pb::RequestFinished::REASON_FAILED;
    if (failed_ || finished.reason() == pb::RequestFinished::REASON_REJECTED) {
      rejection_ = finished.error().empty() ? "the engine refused it" : finished.error();
    }
  }
  if (matcher_.stopped() || needs_no_more) finish_reason_ = "stop";
  ends_by_last_ |= matcher_.stopped();
  if (finish_reason_ == "stop" && calls_ > 0) finish_reason_ = "tool_calls";
  if (StopIsText()) PutOut(OutputKind::kContent, stop_string(), &out);
  CountReleased();
  return out;
}

std::vector<OutputDelta> Answer::Abandon() {
  Deltas out;
  if (finished()) return out;
  PushEnd(&out);
  finish_reason_ = "cancelled";
  CountReleased();
  return out;
}

void Answer::PushToken(TokenId token, Deltas* out) {
  const std::string text = detokenizer_.Push(token);
  if (options_.parser == nullptr) return PushText(text, out);
  const bool inside = options_.parser->inside_reasoning();
  absl::string_view before = text;
  const std::string own = tokenizer_->TokenBytes(token, /*render_control=*/true);
  const bool is_control = !own.empty() && tokenizer_->TokenBytes(token, /*render_control=*/false).empty();
  // What was held back of other tokens comes with it.
  if (is_control && !options_.render_control && absl::ConsumeSuffix(&before, own)) {
    PushText(before, out);
    PushText(own, out, /*control=*/true);
    dropped_bytes_ += own.size();
  } else {
    PushText(text, out);
  }
  if (inside && options_.parser->inside_reasoning()) ++reasoning_tokens_;
}

void Answer::PushText(absl::string_view text, Deltas* out, bool control) {
  fed_bytes_ += text.size();
  code_points_ += CodePoints(text);
  if (options_.parser == nullptr) {
    PutOut(OutputKind::kContent, matcher_.Push(text), out);
  } else {
    Pass(control ? options_.parser->FeedControl(text) : options_.parser->Feed(text), out);
  }
}

// What the detokenizer still holds can complete a stop string as well.
void Answer::PushEnd(Deltas* out) {
  const int64_t code_points = code_points_;  // what is cut short is no character before the token that ended the answer
  PushText(detokenizer_.Flush(), out);
  code_points_ = code_points;
  if (options_.parser != nullptr) Pass(options_.parser->Finish(), out);
  if (!matcher_.stopped()) PutOut(OutputKind::kContent, matcher_.Flush(), out);
}

void Answer::Pass(Deltas parsed, Deltas* out) {
  for (OutputDelta& delta : parsed) {
    if (NeedsNoMore()) return;
    if (delta.kind == OutputKind::kContent) {
      PutOut(OutputKind::kContent, matcher_.Push(delta.text), out);
      continue;
    }
    // A stop string does not reach over what stands between two stretches of content.
    PutOut(OutputKind::kContent, matcher_.Flush(), out);
    if (delta.kind == OutputKind::kReasoning) {
      PutOut(OutputKind::kReasoning, std::move(delta.text), out);
    } else {
      calls_ += delta.kind == OutputKind::kCallEnd ? 1 : 0;
      if (delta.kind == OutputKind::kCallStart) Begin(delta.kind);
      AppendDelta(std::move(delta), out);
    }
  }
}

void Answer::Begin(OutputKind kind) {
  if (parts_ == 0 || kind != last_part_ || kind == OutputKind::kCallStart) ++parts_;
  last_part_ = kind;
}

void Answer::PutOut(OutputKind kind, std::string text, Deltas* out) {
  if (text.empty()) return;
  Begin(kind);
  (kind == OutputKind::kReasoning ? reasoning_ : text_) += text;
  AppendDelta({kind, std::move(text), ""}, out);
}

// The answer has ended by a stop string that is part of it.
bool Answer::StopIsText() const {
  return matcher_.stopped() && options_.include_stop && !absl::c_linear_search(options_.ends, stop_string());
}

void Answer::CountReleased() {
  if (matcher_.held_bytes() == 0) dropped_bytes_ = 0;
  const size_t undecided = options_.parser == nullptr ? 0 : options_.parser->held_bytes();
  const uint64_t held = undecided + matcher_.held_bytes() + dropped_bytes_;
  while (released_tokens_ < tokens_.size() && (finished() || ends_in_bytes_[released_tokens_] + held <= fed_bytes_)) {
    ++released_tokens_;
    released_in_.push_back(std::max<size_t>(parts_, 1) - 1);
  }
}

size_t Answer::ListableTokens() const {
  const size_t all = tokens_.size();
  if (all == listed_) return all;
  if (finished()) {
    const bool without_last = !options_.list_end && (stop_token_ || (ends_by_last_ && !StopIsText()));
    return without_last ? all - 1 : all;
  }
  // One that ends the answer waits until the session says that it did.
  return std::min(released_tokens_, Ends(tokens_.back().token) ? all - 1 : all);
}

std::vector<ListedToken> Answer::TakeListed() {
  std::vector<ListedToken> listed;
  for (const size_t end = ListableTokens(); listed_ < end; ++listed_) {
    const SampledToken& token = tokens_[listed_];
    listed.push_back(
        {token.token, token.logprob, token.top, options_.first_offset + text_offsets_[listed_], released_in_[listed_]});
  }
  return listed;
}

}  // namespace stagecoach
