#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_MODEL_GUESSES_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_MODEL_GUESSES_H_

// Guesses made with the simulated model itself.

#include <cstdint>
#include <random>
#include <vector>

#include "coordinator/schedule/guess_feed.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {

// What the model will say behind the sequence's guesses in flight, if they are right.
inline TokenId RightGuess(const Sequence& sequence) {
  std::vector<TokenId> tokens = sequence.spec().prompt;
  tokens.insert(tokens.end(), sequence.output().begin(), sequence.output().end());
  tokens.insert(tokens.end(), sequence.guesses.begin(), sequence.guesses.end());
  return ModelToken(tokens);
}
inline TokenId WrongGuess(const Sequence& sequence) { return (RightGuess(sequence) + 1) % kSimulatedVocabulary; }

// Right with a probability. Now and then it has none.
class RandomGuesses : public GuessFeed {
 public:
  RandomGuesses(uint32_t seed, double right) : random_(seed), right_(right) {}
  double right() const { return right_; }

  bool MayGuess(uint64_t, int32_t) override { return random_() % 16 > 0; }
  TokenId GuessFor(const Sequence& sequence) override {
    if (random_() % 16 == 0) return kNoToken;
    const TokenId right = RightGuess(sequence);
    if (static_cast<double>(random_() % 1000) < right_ * 1000) return right;
    const auto other = static_cast<TokenId>(random_() % kSimulatedVocabulary);
    return other == right ? kNoToken : other;
  }

 private:
  std::mt19937 random_;
  const double right_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_MODEL_GUESSES_H_
