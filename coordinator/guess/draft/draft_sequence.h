#ifndef STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_SEQUENCE_H_
#define STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_SEQUENCE_H_

// What the draft does for one request: the request's tokens, the tokens that the draft has drawn behind them, and the
// rows that it computes next. Pure.
//
//   True    tokens of the prompt, and those that the model has given.
//   Drawn   tokens that the draft sampled behind the true ones. A true token that is another takes the place of all
//           from there on.
//   Rows    row p carries the token at position p; the last row of a slice gives the token behind it.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

class DraftSequence {
 public:
  // tokens: the true ones so far. ends: tokens behind which nothing is drawn. context: rows that the draft can have.
  DraftSequence(std::vector<TokenId> tokens, std::vector<TokenId> ends, int64_t context)
      : tokens_(std::move(tokens)), ends_(std::move(ends)), context_(context), truth_(size()) {}

  const std::vector<TokenId>& tokens() const { return tokens_; }  // true, then drawn
  int64_t truth() const { return truth_; }                        // of them, the true ones

  // The next true token.
  void Confirm(TokenId token);
  // The token behind the true ones and `run`, where the draft has drawn that run; kNoToken: it has not, or not yet.
  TokenId Behind(absl::Span<const TokenId> run) const;

  struct Rows {
    int64_t start = 0, count = 0;
    bool sample = false;
    int64_t end() const { return start + count; }
  };
  // What it computes next: true tokens that it lags behind, most_rows of them at most; else the last one drawn, while
  // fewer than `ahead` are. Nothing while rows are in flight. Rows that take the place of others come alone, each with
  // its sample: the stage goes back by such rows only, and tables have the blocks of all that were there.
  std::optional<Rows> Next(int64_t ahead, int64_t most_rows) const;
  void Sent(const Rows& rows);  // they are in flight
  // They came back, with a token if they were sampled; kNoToken: none can be drawn there. True: it is one more that is
  // drawn.
  bool Came(TokenId token);

 private:
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

  std::vector<TokenId> tokens_;
  std::vector<TokenId> ends_;
  int64_t context_;
  int64_t truth_;
  int64_t rows_ = 0;      // that were sent with the tokens that stand there now
  int64_t furthest_ = 0;  // most rows ever sent
  std::optional<Rows> in_flight_;
  bool stale_ = false;  // another token stands where the rows in flight are
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_SEQUENCE_H_
