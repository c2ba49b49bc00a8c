// Frames off the wire.

#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/weight_frame.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {

namespace {

// What a stage relies on when it looks slots up.
void CheckStates(const FrameLimits& limits, const MicroBatch& batch) {
  for (const SequenceSlice& slice : batch.slices) {
    const bool reads = limits.state_slots > 0 && slice.start > 0;
    FuzzCheck(reads ? slice.state_read >= 0 && slice.state_read < limits.state_slots : slice.state_read == kNoSlot,
              "a slice reads a slot of the pool, or none");
    FuzzCheck(limits.state_slots == 0 ? slice.state_write == kNoSlot
                                      : slice.state_write >= 0 && slice.state_write < limits.state_slots,
              "a slice writes a slot of the pool, or none");
    for (const SequenceSlice& other : batch.slices) {
      FuzzCheck(&other == &slice || slice.state_write == kNoSlot ||
                    (other.state_read != slice.state_write && other.state_write != slice.state_write),
                "a slot that is written is named by one slice");
    }
  }
}

// What a stage relies on when it judges guesses and looks their blocks up.
void CheckGuesses(const FrameLimits& limits, const MicroBatch& batch) {
  for (const SequenceSlice& slice : batch.slices) {
    FuzzCheck(!slice.guess || (limits.most_guesses > 0 && slice.count == 1 && slice.sample && slice.start > 0 &&
                               slice.targets.empty() && slice.tokens.size() == 1),
              "a guess is one sampled row with its token");
    for (const SequenceSlice& other : batch.slices)
      FuzzCheck(&other == &slice || other.sequence != slice.sequence, "a sequence has one slice");
  }
}

void CheckVoidResults(const FrameLimits& limits, const StepResult& result) {
  for (const SampledToken& token : result.sampled) {
    FuzzCheck(token.is_void ? limits.most_guesses > 0 && token.token == kNoToken && token.top.empty()
                            : token.token >= 0 && token.token < limits.vocab,
              "a row gives a token of the vocabulary, or is void and gives nothing");
  }
}

void CheckGrammars(const FrameLimits& limits, const MicroBatch& batch) {
  size_t bytes = 0;
  for (const GrammarDefinition& definition : batch.define_grammars) bytes += definition.program.size();
  FuzzCheck(bytes <= static_cast<size_t>(kMaxDefinitionBytes) &&
                batch.define_grammars.size() <= static_cast<size_t>(limits.max_slices) &&
                batch.drop_grammars.size() <= static_cast<size_t>(limits.MaxGrammars()),
            "a batch brings no more grammars than it may");
}

}  // namespace

void Fuzz(FuzzInput input) {
  const uint8_t choice = input.Byte();
  FrameLimits limits = (choice & 16) != 0 ? StatefulLimits() : SmallLimits();
  if ((choice & 32) != 0) limits.most_guesses = GuessingLimits().most_guesses;
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(input.rest().data()), input.rest().size());
  switch (choice % 5) {
    case 0: {
      const absl::StatusOr<StepFrame> step = DecodeStep(limits, bytes, 7, (choice & 8) != 0);
      if (!step.ok()) break;
      FuzzCheck(step->batch.rows() <= limits.max_rows, "a batch is within its limits");
      CheckGrammars(limits, step->batch);
      CheckStates(limits, step->batch);
      CheckGuesses(limits, step->batch);
      break;
    }
    case 1: {
      const absl::StatusOr<StepResult> result = DecodeResult(limits, bytes, 7);
      if (result.ok()) CheckVoidResults(limits, *result);
      break;
    }
    case 2: (void)DecodeControl(limits.job, bytes); break;
    case 3: (void)DecodeControl({}, bytes); break;
    case 4: (void)DecodePing(bytes); break;
  }
}

}  // namespace stagecoach
