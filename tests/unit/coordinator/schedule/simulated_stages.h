#ifndef STAGECOACH_TESTS_UNIT_SCHEDULE_SIMULATED_STAGES_H_
#define STAGECOACH_TESTS_UNIT_SCHEDULE_SIMULATED_STAGES_H_

// What the stages make of a stream of micro-batches, for tests of the scheduler: the block tables are kept by the
// deltas that travel, every slot of the pool remembers whose row was written there, and the "model" is a hash of the
// tokens found through the block table. A scheduler that gives a block away too early, forgets a row or hands it out
// twice, is caught or yields a different text; so is one that keeps more blocks of a group with a window than this can
// use. A slot of recurrent states remembers the tokens that it is the state of: a slice that reads another sequence's,
// or those of other rows, is caught, and so is a slot that one slice writes and another names. So is a grammar that is
// defined twice, dropped while it is followed, or followed while it is not there, and too many or too large ones.
// Guessed rows are judged as the last stage does. What a void one wrote must be overwritten before a row that counts,
// or another sequence, sees it; so is caught a rewind that is too deep, over a row that was no guess, into a block of
// others, or to a row that is right already.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/step/step.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

inline constexpr TokenId kSimulatedVocabulary = 24;

// The model: a hash of all tokens before.
TokenId ModelToken(absl::Span<const TokenId> prefix);
float ModelLogprob(absl::Span<const TokenId> prefix, TokenId target);
// Beside a target: other tokens than those of any other row nearby.
TokenLogprob ModelTop(absl::Span<const TokenId> prefix, int32_t place);

// What a sequence must give, computed alone.
struct ExpectedAnswer {
  std::vector<TokenId> output;      // those of the spec included
  std::map<int64_t, float> scores;  // by the position of the row
  FinishReason reason = FinishReason::kLength;
};
ExpectedAnswer ComputeAlone(const SequenceSpec& spec, int64_t context);

class SimulatedStages {
 public:
  explicit SimulatedStages(const SchedulerOptions& options);

  // Computes a micro-batch. kInternal says what a stage would have refused.
  absl::StatusOr<StepResult> Run(const MicroBatch& batch);

  size_t open_sequences() const { return open_.size(); }
  bool is_open(SequenceId sequence) const { return open_.contains(sequence); }
  size_t grammars() const { return grammars_.size(); }
  // That an open sequence follows; empty: none.
  std::string GrammarOf(SequenceId sequence) const;
  // Most blocks of the group that a sequence had at once, and those that any gave back while it went on.
  int64_t most_blocks(size_t group) const { return most_blocks_[group]; }
  int64_t released() const { return released_; }
  // Guessed rows, of them those that held, and known rows that took the place of a wrong one.
  int64_t guesses() const { return guesses_; }
  int64_t held() const { return held_; }
  int64_t rewinds() const { return rewinds_; }
  // Slices that read a slot and wrote another, and that read what another sequence wrote.
  int64_t copied_states() const { return copied_states_; }
  int64_t shared_states() const { return shared_states_; }

 private:
  struct State {
    int64_t rows = 0;  // 0: never written
    uint64_t prefix = 0;
    SequenceId sequence = 0;  // who wrote it
  };
  struct Slot {
    uint64_t opening = 0;  // 0: never written
    int64_t position = 0;
    TokenId token = kNoToken;
    uint64_t prefix = 0;  // a hash of the tokens up to this one: whoever shares the block has the same
  };
  struct Open {
    uint64_t opening = 0;         // unique: a sequence opened again must not see what it wrote before
    int64_t known = 0;            // tokens at opening
    int32_t tops = 0;             // log-probabilities beside each target
    std::vector<TokenId> tokens;  // that are known
    std::vector<TokenId> sent;    // of the rows so far, shared ones included; behind a wrong guess other ones
    int32_t guesses = 0;          // of them, the trailing ones that were guesses
    BlockLists tables;
    std::vector<int64_t> released;  // [groups] places at the beginning, which hold kNoBlock
    int64_t shared = 0;             // rows computed by others
    int64_t rows() const { return static_cast<int64_t>(sent.size()); }
    GrammarId grammar = kNoGrammar;
  };

  absl::Status ApplyControl(const MicroBatch& batch);
  absl::Status ApplyGrammars(const MicroBatch& batch);
  absl::Status ShareBlocks(const OpenSequence& open, Open& sequence);
  absl::Status RunSlice(const SequenceSlice& slice, StepResult& result);
  absl::Status CheckForm(const SequenceSlice& slice, const Open& sequence) const;
  absl::Status CheckRewind(const SequenceSlice& slice, const Open& sequence) const;
  absl::Status RunRow(const SequenceSlice& slice, int64_t position, bool known, Open& sequence);
  absl::Status ReleaseBlocks(const SequenceSlice& slice, Open& sequence);
  absl::Status TakeBlocks(const SequenceSlice& slice, Open& sequence);
  absl::Status CheckStates(const MicroBatch& batch) const;
  absl::Status RunState(const SequenceSlice& slice, const Open& sequence);
  void GiveBack(size_t group, BlockId block);
  int64_t FirstSeen(size_t group, int64_t row) const;  // position
  Slot& SlotOf(const Open& sequence, size_t group, int64_t position);
  // Whether the pools of all groups hold the sequence's tokens of the positions below `end` that `row` sees.
  absl::Status CheckSlots(const Open& sequence, int64_t row, int64_t end) const;

  const SchedulerOptions options_;
  std::vector<std::vector<Slot>> pools_;  // [groups]
  std::map<SequenceId, Open> open_;
  std::map<GrammarId, std::string> grammars_;  // programs
  GrammarId last_grammar_ = kNoGrammar;
  std::vector<std::map<BlockId, int>> owners_;  // [groups] how many tables a block is in
  uint64_t next_number_ = 0;
  uint64_t openings_ = 0;
  std::vector<int64_t> most_blocks_;  // [groups]
  int64_t released_ = 0, guesses_ = 0, held_ = 0, rewinds_ = 0;
  std::vector<State> states_;
  int64_t copied_states_ = 0, shared_states_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_SCHEDULE_SIMULATED_STAGES_H_
