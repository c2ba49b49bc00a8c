#ifndef STAGECOACH_COORDINATOR_GUESS_SUFFIX_GUESSER_H_
#define STAGECOACH_COORDINATOR_GUESS_SUFFIX_GUESSER_H_

// Guesses what followed the last tokens where they occurred before: in the request's own prompt and output, and where
// these have no match of kLongMatch tokens, also in earlier requests of its cache salt. The longest match counts, of
// two as long its own, then what followed it most often (suffix_index.h). Any model can use it, and it costs no model's
// time.
//
// Memory: at most `most_tokens` of the request are indexed, the newest; the older half is given up at once. So that no
// Append takes long, the newer half has an index of its own, which grows while that of both answers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/guess/suffix_index.h"
#include "coordinator/guess/suffix_store.h"

namespace stagecoach {

class SuffixGuesser : public Guesser {
 public:
  static constexpr int64_t kLongMatch = 8;  // tokens; at most SuffixStore::kWindow

  struct Limits {
    int64_t least_match = 1;        // tokens, at least 1
    int64_t most_tokens = 1 << 16;  // at least 2
  };
  // `earlier` outlives this; null: the request's own text alone. What is found there counts as used.
  explicit SuffixGuesser(const Limits& limits, SuffixStore* earlier = nullptr, std::string salt = "");

  void Append(TokenId token) override;
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override;
  uint64_t version() const override { return earlier_ == nullptr ? 0 : earlier_->version(); }

  const SuffixIndex& index() const { return index_; }
  // Of all loops of Append so far: what tests hold its bound with.
  int64_t steps() const { return past_steps_ + index_.steps() + successor_.steps(); }

 private:
  const Limits limits_;
  SuffixStore* const earlier_;
  const std::string salt_;
  SuffixIndex index_;          // answers
  SuffixIndex successor_;      // the newer half of a full one
  std::vector<TokenId> tail_;  // the history's last SuffixStore::kWindow tokens
  int64_t past_steps_ = 0;     // of indices that were given up
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_SUFFIX_GUESSER_H_
