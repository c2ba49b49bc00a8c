#include "coordinator/guess/grammar_fork.h"

#include <algorithm>
#include <cstddef>

namespace stagecoach {

bool GrammarFork::Allows(absl::Span<const TokenId> run, TokenId token) {
  if (lost_) return false;
  // Another run, or a guess that was allowed and not sent: the fork begins again.
  if (ahead_.size() > run.size() || !std::equal(ahead_.begin(), ahead_.end(), run.begin())) fork_.reset();
  if (!fork_.has_value()) {
    fork_ = matcher_;
    ahead_.clear();
  }
  for (size_t i = ahead_.size(); i < run.size(); ++i) {
    if (!Walk(run[i])) return false;
  }
  return Walk(token);
}

bool GrammarFork::Walk(TokenId token) {
  const int64_t before = fork_->steps();
  const bool follows = !lost_ && fork_->Append(token);
  steps_ += fork_->steps() - before;
  lost_ = lost_ || steps_ > kMaxGrammarTextSteps;
  if (follows) ahead_.push_back(token);
  return follows;
}

void GrammarFork::Confirm(TokenId token) {
  lost_ = lost_ || !matcher_.Append(token);
  if (!ahead_.empty() && ahead_.front() == token) {
    ahead_.erase(ahead_.begin());
  } else {
    fork_.reset();
    ahead_.clear();
  }
}

}  // namespace stagecoach
