#ifndef STAGECOACH_COORDINATOR_GUESS_PREDICTION_GUESSER_H_
#define STAGECOACH_COORDINATOR_GUESS_PREDICTION_GUESSER_H_

// Guesses that the output repeats a text that the request predicts, for example a file that is to be edited.
//
//   Alignment  the longest match of the output's end in the prediction (suffix_index.h). An output that has followed
//              the prediction from its start is aligned however short it is: before its first token, too.
//   No guess   behind the prediction's last token, and where the match is shorter than kLeastMatch and does not reach
//              back to the start.
//   Counts     a confirmed token is accepted where it is what the prediction said for its place, rejected where it said
//              another. They depend on prediction and output alone: neither on which guesses were sent, nor on stages.
//   Delay      the prediction is indexed by CatchUp, which bounds what one call takes. Until then there is no guess,
//   and
//              appended tokens wait; the counts lack them.
// Memory as the index of the prediction takes it; whoever takes requests bounds that.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/guess/suffix_index.h"

namespace stagecoach {

class PredictionGuesser : public Guesser {
 public:
  static constexpr int64_t kLeastMatch = 2;  // tokens

  explicit PredictionGuesser(std::vector<TokenId> prediction);

  // Takes up to so many tokens, of the prediction and of what waits for it; says how many. Fewer: there are no more.
  int64_t CatchUp(int64_t most_tokens);

  void Append(TokenId token) override;  // of the output alone
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override;
  uint64_t version() const override { return caught_up() ? 1 : 0; }

  int64_t accepted() const { return accepted_; }  // tokens of the output
  int64_t rejected() const { return rejected_; }

 private:
  bool caught_up() const { return indexed_ == prediction_.size() && waiting_.empty(); }
  void Take(TokenId token);  // of the output
  // What follows a place that is so many tokens behind the output's end.
  std::optional<Guess> Following(SuffixIndex::Place place, int64_t run) const;
  // The output's end in the prediction.
  SuffixIndex::Place Here() const { return output_ == 0 ? index_.Step({}, SuffixIndex::kBorder) : place_; }

  const std::vector<TokenId> prediction_;
  size_t indexed_ = 0;            // tokens of it
  std::vector<TokenId> waiting_;  // of the output, for the rest to be indexed
  SuffixIndex index_;             // a border, which stands for the output's start, and the prediction
  SuffixIndex::Place place_;      // behind the output, if it has a token
  int64_t output_ = 0;            // tokens taken
  int64_t accepted_ = 0, rejected_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_PREDICTION_GUESSER_H_
