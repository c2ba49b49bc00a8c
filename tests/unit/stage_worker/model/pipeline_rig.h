#ifndef STAGECOACH_TESTS_UNIT_STAGE_MODEL_PIPELINE_RIG_H_
#define STAGECOACH_TESTS_UNIT_STAGE_MODEL_PIPELINE_RIG_H_

// Stages chained in one process, hidden states handed on in memory, and a block table for every sequence; of a model
// with recurrent layers a state slot, too.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/model/model_description.h"
#include "common/step/step.h"
#include "stage_worker/model/stage_model.h"

namespace stagecoach::testing {

// The best instruction set of this machine that computes what the scalar twin does. Better ones may multiply BF16 by a
// dot instruction, which rounds activations to BF16 first.
std::string TwinIsa();

struct RigOptions {
  int stages = 1;             // of about as many layers each,
  std::vector<int64_t> cuts;  // or cut before these layers
  int threads = 1;
  int32_t block_tokens = 32;
  KvType kv_type = KvType::kF16;
  std::string isa = "auto";
  bool allow_damaged = false;
  int32_t most_guesses = 0;
};

class PipelineRig {
 public:
  static constexpr int32_t kMaxRows = 96;
  static constexpr int32_t kMaxSlices = 48;
  static constexpr int32_t kStateSlots = kMaxSlices + 4;

  PipelineRig(std::shared_ptr<const ModelDescription> model, const RigOptions& options);

  // Goes into the next Step.
  SequenceId Open(const std::vector<TokenId>& prompt, const SamplingParams& sampling = {});
  // Under the id of a sequence that was closed.
  void Reopen(SequenceId sequence, const std::vector<TokenId>& prompt, const SamplingParams& sampling = {},
              const std::vector<TokenId>& output = {});
  void Close(SequenceId sequence);
  // Keeps the state of a sequence's rows so far: its next ones write another slot.
  SlotId KeepState(SequenceId sequence);
  // A sequence that begins behind `rows` rows of another one, whole blocks, whose state that slot keeps.
  SequenceId OpenBehind(SequenceId other, int32_t rows, SlotId state, const std::vector<TokenId>& prompt,
                        const SamplingParams& sampling = {});
  void Feed(SequenceId sequence, const std::vector<TokenId>& tokens, bool sample,
            const std::vector<TokenId>& targets = {});

  // A row behind those fed so far, in a state slot of its own, of a sequence whose rows before any guesses are known.
  void Guess(SequenceId sequence, TokenId token);
  // Of the oldest guess, whose result or that of the row before it has come: what it stands on is its own state now.
  void Hold(SequenceId sequence);
  // It was wrong: the next row goes back to its position.
  void Miss(SequenceId sequence);

  // What the next Step runs so far.
  MicroBatch& batch() { return batch_; }
  // Runs what was collected through all stages; every stage must take it in.
  StepResult Step();

  // Feeds prompt and output so far in chunks, sampling after the last row. The last step's result.
  StepResult Prefill(SequenceId sequence, const std::vector<TokenId>& tokens, int chunk);

  // Logits after every one of the tokens, of a sequence of their own, in chunks.
  std::vector<std::vector<float>> LogitsOf(const std::vector<TokenId>& tokens, size_t chunk);

  // Of the last step, after the last layer: [rows, D].
  const std::vector<float>& hidden() const { return hidden_; }
  std::vector<float> Logits(int64_t row);  // of the last step's row
  StageModel& stage(size_t i) { return *stages_[i]; }
  const StageCounters& counters(size_t i) const { return *counters_[i]; }

 private:
  struct Sequence {
    int32_t rows = 0;
    BlockLists tables;                             // [groups]
    size_t shared = 0;                             // blocks of each that are another sequence's
    SlotId state = kNoSlot, next_state = kNoSlot;  // what its next rows read and write, behind those that are known
    std::vector<SlotId> guesses;                   // the states behind guessed rows
  };
  SlotId TakeSlot();
  void GiveSlot(SlotId slot);
  void AddSlice(SequenceSlice slice);

  const std::shared_ptr<const ModelDescription> model_;
  const int32_t block_tokens_;
  std::vector<std::unique_ptr<StageCounters>> counters_;
  std::vector<std::unique_ptr<StageModel>> stages_;
  BlockLists free_blocks_;  // [groups]
  std::vector<SlotId> free_slots_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  SequenceId next_sequence_ = 1;
  MicroBatch batch_;
  std::vector<float> hidden_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_STAGE_MODEL_PIPELINE_RIG_H_
