#include "coordinator/guess/suffix_guesser.h"

#include <utility>
#include <vector>

#include "common/base/check.h"

namespace stagecoach {

SuffixGuesser::SuffixGuesser(const Limits& limits, SuffixStore* earlier, std::string salt)
    : limits_(limits), earlier_(earlier), salt_(std::move(salt)) {
  CHECK_GE(limits_.least_match, 1);
  CHECK_GE(limits_.most_tokens, 2);
}

void SuffixGuesser::Append(TokenId token) {
  if (index_.size() == limits_.most_tokens) {
    past_steps_ += index_.steps();
    index_ = std::exchange(successor_, {});
  }
  if (index_.size() >= limits_.most_tokens - limits_.most_tokens / 2) successor_.Append(token);
  index_.Append(token);
  if (tail_.size() == SuffixStore::kWindow) tail_.erase(tail_.begin());
  tail_.push_back(token);
}

std::optional<Guess> SuffixGuesser::Next(absl::Span<const TokenId> run) const {
  SuffixIndex::Place place = index_.End();
  for (const TokenId token : run) place = index_.Step(place, token);
  SuffixIndex::Continuation next = index_.Continued(index_.Followed(place));
  if (next.length < kLongMatch && earlier_ != nullptr) {
    std::vector<TokenId> tail = tail_;
    tail.insert(tail.end(), run.begin(), run.end());
    const SuffixIndex::Continuation earlier = earlier_->Find(salt_, tail);
    if (earlier.length > next.length) next = earlier;
  }
  if (next.length < limits_.least_match) return std::nullopt;
  return Guess{next.token, next.Confidence()};
}

}  // namespace stagecoach
