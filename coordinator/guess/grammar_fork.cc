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
  if (!fork_->Append(token)) return false;
  ahead_.push_back(token);
  return true;
}

void GrammarFork::Confirm(TokenId token) {
  lost_ = lost_ || !matcher_.Append(token);
  if (!ahead_.empty() && ahead_.front() == token) {
    ahead_.pop_front();
  } else {
    fork_.reset();
    ahead_.clear();
  }
}

}  // namespace stagecoach
