#include "coordinator/cli/perplexity_score.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {

PerplexityWindows::PerplexityWindows(std::vector<TokenId> tokens, int64_t context, TokenId bos)
    : tokens_(std::move(tokens)), context_(context), bos_(bos) {
  CHECK_GE(context_, 4);
}

std::vector<TokenId> PerplexityWindows::Window(int64_t index) const {
  CHECK(index >= 0 && index < count());
  const auto begin = tokens_.begin() + index * context_;
  std::vector<TokenId> window(begin, begin + context_);
  if (bos_ != kNoToken) window[0] = bos_;
  return window;
}

WindowScore::WindowScore(int64_t first, int64_t end)
    : first_(first), missing_(end - first), logprobs_(static_cast<size_t>(end - first)), have_(logprobs_.size()) {}

// The row at position p gives the log-probability of the token at p + 1.
absl::Status WindowScore::Add(const TargetLogprobs& scores) {
  for (size_t row = 0; row < scores.logprobs.size(); ++row) {
    const int64_t position = scores.start + static_cast<int64_t>(row) + 1;
    const int64_t index = position - first_;
    if (index < 0 || index >= static_cast<int64_t>(logprobs_.size())) continue;
    const float logprob = scores.logprobs[row];
    if (have_[index]) return absl::InternalError(absl::StrCat("position ", position, " was scored twice"));
    if (!(logprob <= 0)) {
      return absl::InternalError(absl::StrCat("position ", position, " has the log-probability ", logprob));
    }
    have_[index] = true;
    logprobs_[index] = logprob;
    --missing_;
  }
  return absl::OkStatus();
}

PerplexityEstimate EstimatePerplexity(absl::Span<const WindowScore> windows) {
  double sum = 0;
  double squares = 0;
  PerplexityEstimate estimate;
  for (const WindowScore& window : windows) {
    if (!window.complete()) continue;
    for (float logprob : window.logprobs()) {
      const double nll = -static_cast<double>(logprob);
      sum += nll;
      squares += nll * nll;
    }
    estimate.tokens += static_cast<int64_t>(window.logprobs().size());
  }
  if (estimate.tokens == 0) return estimate;
  const double count = static_cast<double>(estimate.tokens);
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  estimate.perplexity = std::exp(mean);
  if (estimate.tokens > 1 && variance > 0) estimate.error = std::sqrt(variance / (count - 1)) * estimate.perplexity;
  return estimate;
}

}  // namespace stagecoach
