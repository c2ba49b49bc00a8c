#include "coordinator/text/output/call_scanner.h"

#include <algorithm>

#include "coordinator/text/utf8.h"

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

void CallScanner::Show(absl::string_view text, bool at_end) {
  text_ = text;
  at_end_ = at_end;
  if (starved()) state_ = State::kGoing;
}

bool CallScanner::AtEnd() {
  if (!ok()) return false;
  const size_t space = LeadingSpace(rest().substr(0, kMostHead));
  scanned_bytes_ += space;
  if (space < rest().size()) return false;
  if (!at_end_) Starve();
  return at_end_;
}

void CallScanner::EndStep() {
  if (starved()) position_ = step_begin_;
}

void CallScanner::Fail() {
  if (ok()) state_ = State::kFailed;
}

absl::string_view CallScanner::Starve() {
  state_ = State::kStarved;
  return "";
}

void CallScanner::Skip(size_t bytes) {
  scanned_bytes_ += bytes;
  position_ += bytes;
}

void CallScanner::SkipSpace() {
  if (!ok()) return;
  const size_t bytes = LeadingSpace(rest().substr(0, kMostHead));
  if (bytes == kMostHead) return Fail();
  Skip(bytes);
}

bool CallScanner::Try(absl::string_view marker) {
  if (!ok()) return false;
  ++scanned_bytes_;
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
  if (!ok()) return;
  const size_t space = LeadingSpace(rest().substr(0, kMostHead));
  Skip(space);
  if (space == kMostHead || !Try(marker)) position_ -= space;
}

char CallScanner::Peek() {
  if (!ok()) return 0;
  ++scanned_bytes_;
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

absl::string_view CallScanner::HeadUntil(absl::string_view marker) {
  if (!ok()) return "";
  const absl::string_view window = rest().substr(0, kMostHead);
  scanned_bytes_ += window.size();
  const size_t found = window.find(marker);
  if (found != absl::string_view::npos) {
    const absl::string_view head = WithoutSpaceAround(window.substr(0, found));
    if (head.find_first_of("<{}\n") == absl::string_view::npos) {
      position_ += found + marker.size();
      return head;
    }
    Fail();
    return "";
  }
  if (window.size() < kMostHead) return Starve();
  Fail();
  return "";
}

absl::string_view CallScanner::While(bool (*belongs)(char)) {
  if (!ok()) return "";
  const absl::string_view window = rest().substr(0, kMostHead);
  const size_t bytes = std::find_if_not(window.begin(), window.end(), belongs) - window.begin();
  scanned_bytes_ += bytes + 1;
  if (bytes == window.size() && bytes < kMostHead && !at_end_) return Starve();
  if (bytes == 0 || bytes == kMostHead) {
    Fail();
    return "";
  }
  position_ += bytes;
  return window.substr(0, bytes);
}

bool CallScanner::Text(absl::Span<const absl::string_view> ends, std::string* text) {
  if (!ok()) return false;
  const MarkerPlace found = FindMarker(rest(), ends, at_end_);
  const bool complete = !found.marker.empty();
  scanned_bytes_ += complete ? found.marker.size() : rest().size() - found.position;
  if (!complete || found.position > 0) Take(found.position, complete, text);
  if (complete) position_ += found.marker.size();
  return complete;
}

void CallScanner::Take(size_t bytes, bool complete, std::string* text) {
  if (!ok()) return;
  scanned_bytes_ += bytes;
  size_t taken = AppendWholeUtf8(rest().substr(0, bytes), text);
  if (complete && taken < bytes) {
    AppendUtf8(kReplacementCharacter, text);
    taken = bytes;
  }
  position_ += taken;
  if (taken == 0) Starve();
}

}  // namespace stagecoach
