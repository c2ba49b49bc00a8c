#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GUESS_FEED_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GUESS_FEED_H_

// Who guesses the tokens that sequences have not produced yet. The scheduler asks while it composes a micro-batch; the
// answers are inputs of it, and logged as such. Not thread-safe.

#include <cstdint>

#include "common/base/ids.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

class GuessFeed {
 public:
  virtual ~GuessFeed() = default;
  // Whether micro-batch `number` may have guesses at all, while `in_flight` others are on their way.
  virtual bool MayGuess(uint64_t number, int32_t in_flight) = 0;
  // The token at position sequence.handed_out, behind its tokens and its guesses in flight; kNoToken: none. Else a
  // token of the vocabulary, which the stages check. It may yet not be sent: Sequence::guesses says what was.
  virtual TokenId GuessFor(const Sequence& sequence) = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GUESS_FEED_H_
