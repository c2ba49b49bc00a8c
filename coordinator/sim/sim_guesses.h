#ifndef STAGECOACH_COORDINATOR_SIM_SIM_GUESSES_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_GUESSES_H_

// Guesses of made-up tokens, which prove right by chance or as a recorded run's did: every output is kSimulatedToken
// all over, so that a guesser that looks at it would always be right.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/obs/step_record.h"
#include "coordinator/guess/guesser.h"

namespace stagecoach {

// Whether the guess of a sequence's token at a position proves right; none: nobody guesses it.
using SimOutcomes = std::function<std::optional<bool>(SequenceId sequence, int64_t position)>;

// Each guess with this probability, by itself.
SimOutcomes ByChance(double acceptance, uint64_t seed);

// As the guesses of a step log's first job were: the n-th request of the simulation has those of the n-th of the log,
// from its first output token on, and goes on from the start behind the last one. A position whose guess never held
// counts as wrong; of a request without guesses nobody guesses. A simulated loss of a stage numbers requests from 1
// anew: those that go on then have the outcomes of others. nullptr: the log has no guesses.
// `prompt_tokens`: of each request of the simulation; one at least.
SimOutcomes ByLog(const std::vector<StepRecord>& records, std::vector<int64_t> prompt_tokens);

class SimGuesser : public Guesser {
 public:
  static constexpr TokenId kWrongToken = 2;

  SimGuesser(SequenceId sequence, SimOutcomes outcomes) : sequence_(sequence), outcomes_(std::move(outcomes)) {}
  void Append(TokenId) override { ++tokens_; }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override;

 private:
  const SequenceId sequence_;
  const SimOutcomes outcomes_;
  int64_t tokens_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_GUESSES_H_
