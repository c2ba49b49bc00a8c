#include "coordinator/guess/prediction_guesser.h"

#include <algorithm>
#include <utility>

namespace stagecoach {

PredictionGuesser::PredictionGuesser(std::vector<TokenId> prediction) : prediction_(std::move(prediction)) {
  index_.Append(SuffixIndex::kBorder);
}

int64_t PredictionGuesser::CatchUp(int64_t most_tokens) {
  int64_t taken = 0;
  for (; taken < most_tokens && indexed_ < prediction_.size(); ++taken) index_.Append(prediction_[indexed_++]);
  const int64_t waited = std::min(most_tokens - taken, static_cast<int64_t>(waiting_.size()));
  for (int64_t i = 0; i < waited; ++i) Take(waiting_[static_cast<size_t>(i)]);
  waiting_.erase(waiting_.begin(), waiting_.begin() + waited);
  return taken + waited;
}

void PredictionGuesser::Append(TokenId token) {
  if (caught_up()) {
    Take(token);
  } else {
    waiting_.push_back(token);
  }
}

void PredictionGuesser::Take(TokenId token) {
  if (const std::optional<Guess> guess = Following(Here(), 0)) ++(guess->token == token ? accepted_ : rejected_);
  place_ = index_.Step(Here(), token);
  ++output_;
}

std::optional<Guess> PredictionGuesser::Next(absl::Span<const TokenId> run) const {
  if (!caught_up()) return std::nullopt;
  SuffixIndex::Place place = Here();
  for (const TokenId token : run) place = index_.Step(place, token);
  return Following(place, static_cast<int64_t>(run.size()));
}

std::optional<Guess> PredictionGuesser::Following(SuffixIndex::Place place, int64_t run) const {
  const SuffixIndex::Continuation next = index_.Continued(place);
  const bool from_start = next.length == output_ + run + 1;  // with the border
  if (next.token == kNoToken || (next.length < kLeastMatch && !from_start)) return std::nullopt;
  return Guess{next.token, next.Confidence()};
}

}  // namespace stagecoach
