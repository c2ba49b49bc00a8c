#include "coordinator/text/grammar/code_point_set.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (auto [first, last] : ranges) {
    last = std::min(last, kLast);
    if (first > last) continue;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  }
}

void CodePointSet::Add(const CodePointSet& other) {
  std::vector<CodePointRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  *this = CodePointSet(std::move(both));
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet rest;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.ranges_.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLast) rest.ranges_.push_back({next, kLast});
  return rest;
}

CodePointSet CodePointSet::Without(const CodePointSet& other) const {
  CodePointSet rest = Complement();
  rest.Add(other);
  return rest.Complement();
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const CodePointRange* const before = RangeBefore(code_point, ranges_);
  return before != nullptr && code_point <= before->last;
}

}  // namespace stagecoach
