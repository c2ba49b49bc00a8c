#include "coordinator/guess/draft/draft_sequence.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {

void DraftSequence::Confirm(TokenId token) {
  const auto at = static_cast<size_t>(truth_);
  ++truth_;
  if (at < tokens_.size() && tokens_[at] == token) return;
  if (at < tokens_.size()) {
    tokens_.resize(at);
    stale_ = in_flight_.has_value();
    rows_ = std::min(rows_, static_cast<int64_t>(at));
  }
  tokens_.push_back(token);
}

TokenId DraftSequence::Behind(absl::Span<const TokenId> run) const {
  const auto drawn = absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(truth_));
  if (run.size() >= drawn.size() || !std::equal(run.begin(), run.end(), drawn.begin())) return kNoToken;
  return drawn[run.size()];
}

std::optional<DraftSequence::Rows> DraftSequence::Next(int64_t ahead, int64_t most_rows) const {
  if (in_flight_.has_value() || rows_ == size() || most_rows < 1) return std::nullopt;
  const bool goes_back = rows_ < furthest_;
  const bool is_drawn = rows_ >= truth_;
  if (is_drawn) {
    const bool ends = std::find(ends_.begin(), ends_.end(), tokens_.back()) != ends_.end();
    if (ends || size() >= truth_ + ahead) return std::nullopt;
  }
  Rows rows = {.start = rows_, .count = goes_back || is_drawn ? 1 : std::min(size() - rows_, most_rows)};
  rows.sample = goes_back || rows.end() == size();
  if (rows.end() > context_) return std::nullopt;
  return rows;
}

void DraftSequence::Sent(const Rows& rows) {
  CHECK_EQ(rows.start, rows_);
  in_flight_ = rows;
  rows_ = rows.end();
  furthest_ = std::max(furthest_, rows_);
}

bool DraftSequence::Came(TokenId token) {
  const bool wanted = in_flight_->sample && in_flight_->end() == size() && !stale_;
  in_flight_.reset();
  stale_ = false;
  if (!wanted || token == kNoToken) return false;
  tokens_.push_back(token);
  return true;
}

}  // namespace stagecoach
