#ifndef STAGECOACH_COORDINATOR_GUESS_GRAMMAR_FORK_H_
#define STAGECOACH_COORDINATOR_GUESS_GRAMMAR_FORK_H_

// Which guesses the grammar of a request allows: its matcher at the last confirmed token, and a copy that walks the run
// of guesses behind it. While guesses come true, a token costs one step of each. Not thread-safe.
//
// Cost: all copies together take at most the steps of one text, kMaxGrammarTextSteps. A wrong guess gives none back:
// prompt and prediction choose what is guessed, so a request could have its guesses follow a dear path for ever.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/grammar/matcher.h"

namespace stagecoach {

class GrammarFork {
 public:
  explicit GrammarFork(GrammarMatcher matcher) : matcher_(std::move(matcher)) {}

  // Whether `token` may follow the run, which is any tokens. Nothing may where the grammar takes too much to follow,
  // and nothing more once the copies took all their steps.
  bool Allows(absl::Span<const TokenId> run, TokenId token);
  void Confirm(TokenId token);  // the next one of the output

 private:
  bool Walk(TokenId token);  // the fork

  GrammarMatcher matcher_;
  bool lost_ = false;  // the matcher did not follow the output, or forks took all their steps
  std::optional<GrammarMatcher> fork_;
  std::vector<TokenId> ahead_;  // so many tokens is the fork ahead of the matcher
  int64_t steps_ = 0;           // of all forks
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_GRAMMAR_FORK_H_
