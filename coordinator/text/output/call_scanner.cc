#include "coordinator/text/output/call_scanner.h"

#include <algorithm>
#include <utility>

#include "coordinator/text/output/json_text.h"

namespace stagecoach {

size_t LeadingSpace(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && IsOutputSpace(text[bytes])) ++bytes;
  return bytes;
}

size_t TrailingSpace(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && IsOutputSpace(text[text.size() - 1 - bytes])) ++bytes;
  return bytes;
}

absl::string_view WithoutSpaceAround(absl::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  return text;
}

MarkerFit FitMarker(absl::string_view text, absl::string_view marker, bool at_end) {
  if (text.size() >= marker.size()) return text.substr(0, marker.size()) == marker ? MarkerFit::kYes : MarkerFit::kNo;
  return !at_end && marker.substr(0, text.size()) == text ? MarkerFit::kPerhaps : MarkerFit::kNo;
}

MarkerPlace FindMarker(absl::string_view text, absl::Span<const absl::string_view> markers, bool at_end) {
  for (size_t position = 0; position < text.size(); ++position) {
    bool perhaps = false;
    for (const absl::string_view marker : markers) {
      if (text[position] != marker[0]) continue;
      const MarkerFit fit = FitMarker(text.substr(position), marker, at_end);
      if (fit == MarkerFit::kYes) return {position, marker};
      perhaps |= fit == MarkerFit::kPerhaps;
    }
    if (perhaps) return {position, ""};
  }
  return {text.size(), ""};
}

bool CallScanner::AtEnd() {
  if (!ok() || !rest().empty()) return false;
  if (!at_end_) Starve();
  return at_end_;
}

void CallScanner::SkipSpace() {
  if (ok()) position_ += LeadingSpace(rest());
}

absl::string_view CallScanner::Fail() {
  if (ok()) state_ = State::kFailed;
  return "";
}

absl::string_view CallScanner::Starve() {
  state_ = State::kStarved;
  return "";
}

bool CallScanner::Try(absl::string_view marker) {
  if (!ok()) return false;
  switch (FitMarker(rest(), marker, at_end_)) {
    case MarkerFit::kYes: position_ += marker.size(); return true;
    case MarkerFit::kPerhaps: Starve(); return false;
    case MarkerFit::kNo: break;
  }
  return false;
}

void CallScanner::Expect(absl::string_view marker) {
  if (!Try(marker)) Fail();
}

void CallScanner::TryAfterSpace(absl::string_view marker) {
  const size_t before = position_;
  SkipSpace();
  if (!Try(marker)) position_ = before;
}

char CallScanner::Peek() {
  if (!ok()) return 0;
  if (rest().empty()) {
    Starve();
    return 0;
  }
  return text_[position_];
}

char CallScanner::Next() {
  const char next = Peek();
  if (ok()) ++position_;
  return next;
}

absl::string_view CallScanner::Until(absl::string_view marker) {
  if (!ok()) return "";
  const size_t found = text_.find(marker, position_);
  if (found == absl::string_view::npos) return Starve();
  const size_t begin = std::exchange(position_, found + marker.size());
  return text_.substr(begin, found - begin);
}

absl::string_view CallScanner::HeadUntil(absl::string_view marker) {
  if (!ok()) return "";
  const absl::string_view window = rest().substr(0, kMostHead);
  const size_t found = window.find(marker);
  if (found == absl::string_view::npos) return window.size() == kMostHead ? Fail() : Starve();
  position_ += found + marker.size();
  return WithoutSpaceAround(window.substr(0, found));
}

absl::string_view CallScanner::While(bool (*belongs)(char)) {
  if (!ok()) return "";
  const absl::string_view text = rest();
  const size_t bytes = std::find_if_not(text.begin(), text.end(), belongs) - text.begin();
  if (bytes == text.size()) return Starve();
  if (bytes == 0) return Fail();
  position_ += bytes;
  return text.substr(0, bytes);
}

absl::string_view CallScanner::JsonValue() {
  const char first = Peek();
  if (first != '{' && first != '[') Fail();
  if (!ok()) return "";
  const JsonExtent extent = MeasureJson(rest(), kMostDepth);
  if (extent.state == JsonExtent::State::kMore) return Starve();
  const absl::string_view value = rest().substr(0, extent.bytes);
  position_ += extent.bytes;
  return extent.state == JsonExtent::State::kBad || !IsJson(value, kMostDepth) ? Fail() : value;
}

CallReading CallScanner::Result(std::vector<ToolCall> calls) const {
  switch (state_) {
    case State::kGoing: return {CallReading::State::kDone, position_, std::move(calls)};
    case State::kStarved: return {at_end_ ? CallReading::State::kBad : CallReading::State::kMore, text_.size(), {}};
    case State::kFailed: break;
  }
  return {CallReading::State::kBad, position_, {}};
}

}  // namespace stagecoach
