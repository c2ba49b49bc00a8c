#ifndef STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_RUNNER_H_
#define STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_RUNNER_H_

// A smaller model that guesses for the job's own: a pipeline of one stage, which draws ahead of each sequence.
//
//   Guessers  a request's is made with what the request has so far, is told each token that the model gives it, and
//             says what the draft has drawn behind them.
//   Exact     a sequence is opened with the request's own sampling parameters, seed and grammar, and positions are the
//             same: where both models have the same distribution, both draw the same token.
//   Flight    one micro-batch, of all sequences: a row of each that draws, then chunks of those that lag behind.
//   Going back  a true token that differs from the one drawn takes its place: its row starts there, and the stage takes
//             back what stood on the other (StageAssignment::cuts_history).
//   Room      a sequence is opened when a place and the blocks for its tokens are free, the oldest one first. One that
//             finds no block later, or comes to the end of the draft's context, is closed for good.
// A draft that is wrong costs its guesses alone, so nothing is saved or reported. Not thread-safe; the engine's thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/step/step.h"
#include "coordinator/guess/draft/draft_sequence.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/request/grammar_ids.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

class DraftRunner {
 public:
  static constexpr double kConfidence = 0.7;  // of each guess, before there is any experience
  static constexpr int64_t kTimesKept = 16;   // guess_us() is a mean over about so many
  static constexpr int64_t kRest = 16;        // tokens from one guess to the next where nobody guesses
  // Of a request that has fewer to come nothing is guessed: a guess is of the second token at the earliest, and its row
  // gives a third.
  static constexpr int64_t kLeastTokens = 3;

  struct Options {
    int stage = 0;        // that its errors name: the number behind those of the model
    int64_t vocab = 0;    // of the draft
    int64_t context = 0;  // rows of a sequence
    int32_t block_tokens = 32;
    std::vector<int32_t> group_blocks;   // [groups]
    std::vector<int64_t> group_windows;  // [groups] as of WindowOf, or empty
    int32_t state_slots = 0;             // 0: it has no recurrent states
    int32_t sequences = 1;               // at once
    int32_t rows = 1;                    // of a micro-batch, at least `sequences`
    int32_t most_guesses = 1;  // of a sequence in flight in the model's pipeline, as the draft's stage was told
    // Whether the stage could follow this program with the output of a sequence that ends by these tokens. Null: any.
    std::function<bool(const std::string& program, const std::vector<TokenId>& stops)> follows;
  };
  // The pipeline outlives the runner, and the runner its guessers.
  DraftRunner(Pipeline* pipeline, Options options, std::function<int64_t()> now_us = MonotonicUs);

  // nullptr: nothing that it draws could be a guess of this one.
  std::unique_ptr<Guesser> Open(const Sequence& sequence);
  // Tokens drawn behind the true ones, of each sequence; 1 at first. At most 1 + most_guesses. 0: nobody guesses, so
  // one is drawn every kRest tokens, which says how good they are; the rows of those between are computed together.
  void SetAhead(int32_t tokens);

  // Makes progress: takes a result, sends the next micro-batch. True: one came. Errors: the pipeline's; kUnavailable
  // for a result that is not of what was sent. Each says that it is the draft's (WithStage).
  absl::StatusOr<bool> Poll();
  // A micro-batch's time, for a guess of each sequence; 0: not known.
  double guess_us() const { return guess_us_; }

  // Sends the shutdown frame once nothing is in flight; Poll until ended().
  void ShutDown() { shutting_down_ = true; }
  bool ended() const { return ended_; }

 private:
  class RequestGuesser;
  struct Drafted {
    enum class State { kWaiting, kOpen, kClosed };  // for a place; on the stage; for good

    DraftSequence sequence = DraftSequence({}, {}, 0);  // a closed one's is empty
    int64_t prompt = 0;                                 // tokens of it
    SamplingParams sampling;                            // that it is opened with
    GrammarIds::Grammar* grammar = nullptr;
    uint64_t version = 0;  // of its guesser's answers
    State state = State::kWaiting;
    int32_t place = 0;
    int64_t rests_until = 0;        // true tokens, where nobody guesses
    BlockLists tables;              // [groups]
    std::vector<int32_t> released;  // [groups]
  };
  enum class Turn { kDraw, kChunk };

  void Confirm(SequenceId sequence, TokenId token);
  void Close(SequenceId sequence);
  TokenId Behind(SequenceId sequence, absl::Span<const TokenId> run) const;

  absl::StatusOr<bool> Advance();  // Poll
  MicroBatch Compose();
  void OpenNext(MicroBatch* batch);
  void OpenInto(SequenceId sequence, Drafted& drafted, MicroBatch* batch);
  void AddRows(Turn turn, MicroBatch* batch);
  bool AddSlice(SequenceId sequence, Drafted& drafted, const DraftSequence::Rows& rows, MicroBatch* batch);
  void GiveBack(SequenceId sequence, Drafted& drafted);  // what it has, when it is closed
  absl::Status Submit(MicroBatch batch);
  absl::Status Take(const StepResult& result);
  int64_t BlocksFor(int64_t rows) const { return (rows + options_.block_tokens - 1) / options_.block_tokens; }

  Pipeline* const pipeline_;
  const Options options_;
  const std::function<int64_t()> now_us_;
  int32_t ahead_ = 1;
  std::map<SequenceId, Drafted> sequences_;
  std::set<SequenceId> waiting_, open_;  // in the order of their arrival
  SequenceId next_sequence_ = 1;
  GrammarIds grammars_;
  BlockLists free_blocks_;            // [groups]
  std::vector<int32_t> free_places_;  // of open sequences; with states, place i has the slots from i * R on
  std::vector<SequenceId> to_free_;   // by the next micro-batch
  std::optional<MicroBatch> in_flight_;
  uint64_t next_number_ = 0;
  int64_t submitted_us_ = 0;
  double guess_us_ = 0;
  bool shutting_down_ = false, ended_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_DRAFT_DRAFT_RUNNER_H_
