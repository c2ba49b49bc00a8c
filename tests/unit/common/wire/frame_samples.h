#ifndef STAGECOACH_TESTS_UNIT_WIRE_FRAME_SAMPLES_H_
#define STAGECOACH_TESTS_UNIT_WIRE_FRAME_SAMPLES_H_

// Frames for the tests of common/wire.

#include <cstdint>
#include <random>
#include <vector>

#include "common/wire/frame.h"

namespace stagecoach {

// A small job: 3 stages, hidden width 5, 100 tokens of vocabulary, context 64, two block groups of 16 and 12 blocks of
// 8 tokens, 32 rows, 4 slices.
FrameLimits SmallLimits();
// The same of a model with recurrent states: 9 slots.
FrameLimits StatefulLimits();
// The same with up to 3 guesses of a sequence in flight.
FrameLimits GuessingLimits();

// A valid batch of two slices with an open, a free, blocks, targets and token ids; three rows start at position 6 of
// sequence 1.
MicroBatch SampleBatch();
// The same with states: sequence 1 reads a snapshot, slot 8, and writes slot 2, sequence 2 begins in slot 0.
MicroBatch StatefulBatch();
// A guess of sequence 1 that begins a block, and the row of sequence 2 that goes back to position 16 over a guess that
// brought the block there.
MicroBatch GuessingBatch();
// A valid batch within `limits`, drawn at random.
MicroBatch RandomBatch(const FrameLimits& limits, std::mt19937_64* random);
// The same with two grammars dropped and two defined, one of which the opened sequence follows.
MicroBatch WithGrammars(MicroBatch batch);
// The same without what frames between stages do not carry: the tokens of rows that are no guesses.
MicroBatch WithoutTokens(MicroBatch batch);

std::vector<StageTimes> SampleTimes(int stages);
// Of a job with guesses also with a void row.
StepResult SampleResult(const FrameLimits& limits);

// A frame with hidden states and the times of so many stages, or with neither.
StepFrame FrameWith(MicroBatch batch, bool has_hidden, int stages = 1);

// A buffer that holds any frame of the job, with a payload of bytes that depend on their place.
FrameBuffer StepBuffer(const FrameLimits& limits);
std::vector<uint8_t> Bytes(const FrameBuffer& buffer);

// The bytes of a valid frame as the coordinator sends it, and as stage 0 does.
std::vector<uint8_t> EncodedStep(const FrameLimits& limits, const MicroBatch& batch, bool has_hidden);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_WIRE_FRAME_SAMPLES_H_
