#ifndef STAGECOACH_COORDINATOR_PERPLEXITY_PERPLEXITY_H_
#define STAGECOACH_COORDINATOR_PERPLEXITY_PERPLEXITY_H_

// Perplexity by llama.cpp's definition. The text is cut into disjoint windows of `context` tokens; a remainder is
// dropped. If the vocabulary has a BOS token, it replaces each window's first token. Scored are the tokens at positions
// context/2 + 1 to context - 1 of each window, which have at least half a window before them.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

class PerplexityWindows {
 public:
  // `bos`: kNoToken for none. context >= 4.
  PerplexityWindows(std::vector<TokenId> tokens, int64_t context, TokenId bos);

  int64_t count() const { return static_cast<int64_t>(tokens_.size()) / context_; }
  std::vector<TokenId> Window(int64_t index) const;          // [context]
  int64_t first_scored() const { return context_ / 2 + 1; }  // position in a window
  int64_t scored_per_window() const { return context_ - first_scored(); }

 private:
  const std::vector<TokenId> tokens_;
  const int64_t context_;
  const TokenId bos_;
};

// The log-probabilities of one window, which arrive in pieces.
class WindowScore {
 public:
  // Positions [first, end) are wanted.
  WindowScore(int64_t first, int64_t end);

  // kInternal: a position was scored twice, or a log-probability is positive or not a number.
  // Positions that are not wanted are ignored.
  absl::Status Add(const TargetLogprobs& scores);
  bool complete() const { return missing_ == 0; }
  absl::Span<const float> logprobs() const { return logprobs_; }

 private:
  const int64_t first_;
  int64_t missing_;
  std::vector<float> logprobs_;
  std::vector<bool> have_;
};

struct PerplexityEstimate {
  int64_t tokens = 0;     // scored
  double perplexity = 0;  // exp of the mean negative log-likelihood; 0 without tokens
  double error = 0;       // standard error of that mean, times the perplexity; 0 with fewer than two tokens
};

// Over all complete windows, summed in window order, so that the order of arrival does not matter.
PerplexityEstimate EstimatePerplexity(absl::Span<const WindowScore> windows);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PERPLEXITY_PERPLEXITY_H_
