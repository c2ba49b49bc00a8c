#include "coordinator/guess/prediction_guesser.h"

#include <utility>

namespace stagecoach {

PredictionGuesser::PredictionGuesser(std::vector<TokenId> prediction, int64_t prompt_tokens)
    : prediction_(std::move(prediction)), prompt_left_(prompt_tokens) {
  index_.Append(SuffixIndex::kBorder);
}

int64_t PredictionGuesser::CatchUp(int64_t most_tokens) {
  int64_t taken = 0;
  for (; taken < most_tokens && indexed_ < prediction_.size(); ++taken) index_.Append(prediction_[indexed_++]);
  for (; taken < most_tokens && !waiting_.empty(); ++taken) {
    Take(waiting_.front());
    waiting_.pop_front();
  }
  return taken;
}

void PredictionGuesser::Append(TokenId token) {
  if (prompt_left_ > 0) {
    --prompt_left_;
  } else if (caught_up()) {
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
  if (prompt_left_ > 0 || !caught_up()) return std::nullopt;
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
