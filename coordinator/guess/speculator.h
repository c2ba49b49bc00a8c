#ifndef STAGECOACH_COORDINATOR_GUESS_SPECULATOR_H_
#define STAGECOACH_COORDINATOR_GUESS_SPECULATOR_H_

// The guesses of a job: which guesser says them, what a request forbids, how many rows a sequence has in flight, and
// how often guesses prove right.
//
//   Order    the prediction's guess; a suffix match whose calibrated confidence is at least kSure; the draft's; any
//            suffix match. One guess a position: where it is forbidden, there is none.
//   Never    an id that is no real token of the vocabulary, or that the request's grammar refuses behind the guesses in
//            flight. What ends the request the scheduler never sends.
//   Rows     a sequence has at most as many in flight, void ones counted, as SetRows gives its acceptance.
//   Time     a call feeds guessers kTokensATurn tokens at most, and shares them among the open sequences: so many
//            events of one result take little more. Until the guessers of a sequence have caught up, only its
//            prediction guesses. What waits for its admission is not fed. A sequence that ends feeds its prediction
//            kTokensAtEnd tokens at most: where that is not the rest, its cost lacks the output's last tokens.
//   Once     guessers and grammar are asked the same question once (guesser.h): the scheduler asks at every turn of the
//            engine's loop, mostly in vain.
//   Learning a guesser is told what became of its guess for each position: of the one that was sent, else of the one
//            that it would have made behind the token before. So one that was wrong for a while is asked again. The
//            acceptance of a sequence is that of positions: one without a guess is a miss, but for those at which a
//            draft rests. A new sequence expects what those before it had.
//   Memory   the index of each open sequence's text, its prediction's, and the store for ended ones. Where open ones
//            have Options::most_tokens in their indices, nothing more is fed, also to a draft beside them.
// Guesses change no answer, so nothing here is saved: a relaunch begins anew. Not thread-safe; the engine's thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/grammar/matcher.h"
#include "coordinator/guess/acceptance.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/guess/suffix_store.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/groups/guess_shares.h"
#include "coordinator/schedule/guess_feed.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

struct GuesserCounts {
  const char* name = "";          // "prediction", "suffix", "draft"
  uint64_t tried = 0, right = 0;  // guesses sent whose token became known
};

// What became of a request's prediction (prediction_guesser.h), whatever was sent.
struct PredictionCost {
  int64_t accepted = 0, rejected = 0;  // tokens of the output
  bool operator==(const PredictionCost&) const = default;
};

class Speculator : public GuessFeed {
 public:
  static constexpr int64_t kTokensATurn = 512;
  static constexpr int64_t kTokensAtLeast = 8;   // that one of many sequences may be fed in a call
  static constexpr int64_t kTokensAtEnd = 4096;  // some 2 ms
  static constexpr double kSure = 0.9;
  static constexpr double kJobMemory = 256;      // guesses, of all sequences together; see Acceptance
  static constexpr size_t kStoredTokens = 4096;  // of a request's output, its last ones

  struct Options {
    bool suffix = true;
    int64_t vocab = 0;            // ids below are real tokens, except
    std::vector<TokenId> unused;  // these, ascending
    SuffixStore::Limits store;
    int64_t most_tokens = 1 << 19;  // of all open sequences, in indices of some 150 bytes a token
    // A further guesser of a request, a draft's or a test's. Null, or a null one: none. It is fed like the suffix.
    std::function<std::unique_ptr<Guesser>(const Sequence&)> more;
  };
  explicit Speculator(Options options);
  ~Speculator() override;

  // A sequence that the scheduler took. grammar: where its output stands; absent without one. prediction: what much of
  // its output is expected to be.
  void Open(const Sequence& sequence, std::optional<GrammarMatcher> grammar, std::vector<TokenId> prediction);
  // Each event of Scheduler::Confirm, in order, before the next micro-batch is composed. nullptr: the sequence has
  // ended, and is closed. The cost of its prediction so far, all of it when it has ended; zeros without one.
  PredictionCost Confirmed(const SequenceEvent& event, const Sequence* sequence);
  PredictionCost Close(SequenceId sequence);  // one that was cancelled; unknown ones are ignored

  const GuessShares& shares() const { return shares_; }  // of open sequences; kept up, not counted anew
  // R of sequences of at least the class `shares_from`, at least 1; others have 1: no guesses, as all have at first.
  void SetRows(int32_t rows, int32_t shares_from);
  bool MayGuess(uint64_t number, int32_t in_flight) override;
  TokenId GuessFor(const Sequence& sequence) override;

  const std::vector<GuesserCounts>& counts() const { return counts_; }

 private:
  enum Kind : size_t { kPrediction, kSuffix, kMore };
  static constexpr size_t kKinds = 3;
  struct Speculation;                                        // of an open sequence
  using Answers = std::array<std::optional<Guess>, kKinds>;  // of its guessers to one question

  // Feeds what the sequence's guessers lack, as far as a call may.
  void Feed(Speculation& of, const Sequence& sequence);
  void Append(Speculation& of, TokenId token);  // the next token that suffix and draft get
  bool has_room() const { return !options_.suffix || indexed_ < options_.most_tokens; }
  // The guess behind the run that may be sent; kNoToken: none.
  TokenId Answer(Speculation& of, absl::Span<const TokenId> run);
  Answers Ask(const Speculation& of, absl::Span<const TokenId> run) const;
  static Kind Pick(const Speculation& of, const Answers& answers);
  bool IsReal(TokenId token) const;
  // The sequence's next token is known.
  void Take(Speculation& of, TokenId token, SequenceEvent::Guess sent);
  void UpdateShare(Speculation& of);
  static PredictionCost CostOf(const Speculation& of);

  const Options options_;
  SuffixStore store_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Speculation>> open_;
  int64_t indexed_ = 0;  // tokens of all open sequences
  GuessShares shares_ = {};
  int32_t rows_ = 1, shares_from_ = 0;
  std::array<Acceptance, kKinds> means_;  // of the job's guesses
  Acceptance position_mean_;              // of its positions
  std::vector<GuesserCounts> counts_;     // [kKinds]
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_SPECULATOR_H_
