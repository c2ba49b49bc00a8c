#include "coordinator/text/output/call_scanner.h"

#include <algorithm>
#include <utility>

#include "coordinator/text/output/json_text.h"
#include "coordinator/text/output/marker_search.h"

namespace stagecoach {

bool CallScanner::AtEnd() {
  if (!ok()) return false;
  if (!rest().empty()) return false;
  if (!at_end_) Starve();
  return at_end_;
}

void CallScanner::SkipSpace() {
  if (ok()) position_ += LeadingSpace(rest());
}

void CallScanner::Fail() {
  if (ok()) state_ = State::kFailed;
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

void CallScanner::ExpectEither(absl::string_view one, absl::string_view other) {
  if (!Try(one) && !Try(other)) Fail();
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
  if (found == absl::string_view::npos) {
    Starve();
    return "";
  }
  const size_t begin = std::exchange(position_, found + marker.size());
  return text_.substr(begin, found - begin);
}

absl::string_view CallScanner::HeadUntil(absl::string_view marker) {
  if (!ok()) return "";
  const absl::string_view window = rest().substr(0, kMostHead);
  const size_t found = window.find(marker);
  if (found == absl::string_view::npos) {
    window.size() == kMostHead ? Fail() : Starve();
    return "";
  }
  position_ += found + marker.size();
  return WithoutSpaceAround(window.substr(0, found));
}

absl::string_view CallScanner::While(bool (*belongs)(char)) {
  if (!ok()) return "";
  const absl::string_view text = rest();
  const size_t bytes = std::find_if_not(text.begin(), text.end(), belongs) - text.begin();
  if (bytes == text.size()) {
    Starve();
  } else if (bytes == 0) {
    Fail();
  } else {
    position_ += bytes;
    return text.substr(0, bytes);
  }
  return "";
}

absl::string_view CallScanner::JsonValue() {
  const char first = Peek();
  if (first != '{' && first != '[') Fail();
  if (!ok()) return "";
  const JsonExtent extent = MeasureJson(rest(), kMostDepth);
  if (extent.state == JsonExtent::State::kMore) {
    Starve();
    return "";
  }
  const absl::string_view value = rest().substr(0, extent.bytes);
  position_ += extent.bytes;
  if (extent.state == JsonExtent::State::kBad || !IsJson(value, kMostDepth)) {
    Fail();
    return "";
  }
  return value;
}

CallReading CallScanner::Result(std::vector<ToolCall> calls) const {
  switch (state_) {
    case State::kGoing: return {CallReading::State::kDone, position_, std::move(calls)};
    case State::kStarved:
      if (at_end_) return {CallReading::State::kBad, text_.size(), {}};
      return {CallReading::State::kMore, text_.size(), {}};
    case State::kFailed: break;
  }
  return {CallReading::State::kBad, position_, {}};
}

}  // namespace stagecoach
