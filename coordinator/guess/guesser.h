#ifndef STAGECOACH_COORDINATOR_GUESS_GUESSER_H_
#define STAGECOACH_COORDINATOR_GUESS_GUESSER_H_

// Guesses the next token of one request, so that its row can enter the pipeline before its predecessor has left it.
//
//   guesser.Append(token);                       // each token of the prompt, then each confirmed token, once
//   if (auto guess = guesser.Next({})) ...       // the token behind the history
//   if (auto guess = guesser.Next({7})) ...      // the token behind the history and the guess 7
//
// Contract of every guesser
//   History     grows and never shrinks: prompt, then confirmed output. A relaunch makes a new guesser and appends all.
//   Runs        a question brings the whole run of guesses behind the history, whoever made them. Nothing else is
//               remembered of a run, so a wrong guess needs no call: the next question comes without it.
//   Purity      an answer depends on the history, the run and what the guesser was made with. No clock, no I/O.
//   Versions    who has an answer asks again only when the history, the run or version() has changed.
//   Bounds      Append takes amortised constant time, Next time linear in the run; memory has a limit.
//   Wrongness   a guess may be wrong, a stop token or a token that a grammar forbids: the caller decides what to send.
//   Threads     one thread at a time, the engine's.
// What else fits
//   A draft model     its pipeline keeps ahead by itself, and brings its guesses to the guesser as they come. Next says
//                     what has come for this history and run, or nothing yet.
//   A block of the    the guess arrives with the token, so whoever appends the token hands it over. Next says it
//   model's own       behind the empty run and nothing behind others.

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/base/ids.h"

namespace stagecoach {

struct Guess {
  TokenId token = kNoToken;
  double confidence = 0;  // estimated probability that it is right, in (0, 1); see Acceptance::Calibrated
};

class Guesser {
 public:
  virtual ~Guesser() = default;
  virtual void Append(TokenId token) = 0;  // a valid token
  // The token expected behind the history and `run`; none: no idea, or none yet.
  virtual std::optional<Guess> Next(absl::Span<const TokenId> run) const = 0;
  // Grows with all but an Append that may change an answer, such as a draft's guess that comes.
  virtual uint64_t version() const { return 0; }
  // It guesses at some positions alone, as nobody sends its guesses: those without one say nothing of how good it is.
  virtual bool rests() const { return false; }
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_GUESSER_H_
