#include "coordinator/text/marked_text.h"

#include <algorithm>

namespace stagecoach {

MarkedText::MarkedText(absl::string_view text, TextOrigin origin) { Append(text, origin); }

void MarkedText::Append(absl::string_view text, TextOrigin origin) {
  if (text.empty()) return;
  text_.append(text.data(), text.size());
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), origin});
  }
}

void MarkedText::Append(const MarkedText& other) { Append(other, 0, other.size()); }

void MarkedText::Append(const MarkedText& other, size_t begin, size_t size) {
  if (&other == this) {
    const MarkedText copy = Substr(begin, size);
    Append(copy);
    return;
  }
  if (begin >= other.size()) return;
  const size_t end = begin + std::min(size, other.size() - begin);
  for (size_t run = other.RunAt(begin); begin < end; ++run) {
    const size_t run_end = std::min(end, other.runs_[run].end);
    Append(absl::string_view(other.text_).substr(begin, run_end - begin), other.runs_[run].origin);
    begin = run_end;
  }
}

size_t MarkedText::RunAt(size_t position) const {
  const auto ends_after = [](size_t at, const Run& run) { return at < run.end; };
  return std::upper_bound(runs_.begin(), runs_.end(), position, ends_after) - runs_.begin();
}

bool MarkedText::IsTemplate(size_t begin, size_t end) const {
  if (begin >= end) return true;
  const Run& run = runs_[RunAt(begin)];  // neighbours differ: the range is the template's when one run of its holds it
  return run.origin == TextOrigin::kTemplate && end <= run.end;
}

MarkedText MarkedText::Substr(size_t begin, size_t size) const {
  MarkedText part;
  part.Append(*this, begin, size);
  return part;
}

}  // namespace stagecoach
