#include "coordinator/guess/suffix_store.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace stagecoach {

SuffixStore::SuffixStore(const Limits& limits) : limits_(limits), segment_tokens_(limits.tokens_per_salt / 2) {
  CHECK_GE(limits_.tokens_per_salt, 4);
  CHECK_GE(limits_.tokens, limits_.tokens_per_salt);
}

void SuffixStore::Add(absl::string_view salt, absl::Span<const TokenId> text) {
  ++texts_;
  while (!text.empty()) {
    const absl::Span<const TokenId> part = text.first(std::min(text.size(), static_cast<size_t>(segment_tokens_ - 1)));
    Segment& segment = SegmentFor(salt, static_cast<int64_t>(part.size()));
    segment.index.Append(SuffixIndex::kBorder);
    for (const TokenId token : part) segment.index.Append(token);
    text.remove_prefix(part.size());
    Charge(&segment);
    while (charged_ > limits_.tokens) Drop(std::prev(segments_.end()));
  }
}

SuffixStore::Segment& SuffixStore::SegmentFor(absl::string_view salt, int64_t tokens) {
  const auto found = salts_.find(salt);
  if (found != salts_.end()) {
    const Segments::iterator newer = found->second.back();
    if (newer->index.size() + 1 + tokens <= segment_tokens_) {
      segments_.splice(segments_.begin(), segments_, newer);
      return *newer;
    }
    if (found->second.size() == 2) Drop(found->second.front());
  }
  segments_.push_front({.salt = std::string(salt)});
  salts_[segments_.front().salt].push_back(segments_.begin());
  return segments_.front();
}

void SuffixStore::Charge(Segment* segment) {
  const int64_t charge = segment->index.size() + kSegmentCharge + static_cast<int64_t>(segment->salt.size());
  charged_ += charge - segment->charge;
  segment->charge = charge;
}

void SuffixStore::Drop(Segments::iterator segment) {
  const auto of_salt = salts_.find(segment->salt);
  std::vector<Segments::iterator>& list = of_salt->second;
  list.erase(std::find(list.begin(), list.end(), segment));
  if (list.empty()) salts_.erase(of_salt);
  charged_ -= segment->charge;
  segments_.erase(segment);
}

SuffixIndex::Continuation SuffixStore::Find(absl::string_view salt, absl::Span<const TokenId> tail) {
  SuffixIndex::Continuation longest;
  const auto found = salts_.find(salt);
  if (found == salts_.end()) return longest;
  if (tail.size() > kWindow) tail.remove_prefix(tail.size() - kWindow);
  Segments::iterator used = segments_.end();
  for (const Segments::iterator segment : found->second) {
    SuffixIndex::Place place;
    for (const TokenId token : tail) place = segment->index.Step(place, token);
    const SuffixIndex::Continuation continuation = segment->index.Continued(segment->index.Followed(place));
    if (continuation.length == 0 || continuation.length < longest.length) continue;
    longest = continuation;
    used = segment;
  }
  if (used != segments_.end()) segments_.splice(segments_.begin(), segments_, used);
  return longest;
}

int64_t SuffixStore::bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.index.bytes();
  return bytes;
}

}  // namespace stagecoach
