// How large frames can get. Each term is a field of proto/*.proto at its worst: tag, length and the longest form of
// every value that passes the decoder's checks.

#include <algorithm>

#include "common/base/check.h"
#include "common/step/sampling.h"
#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"

namespace stagecoach {
namespace {

constexpr size_t kTag = 1;                  // field numbers are below 16, but for the oneof's 16 and some from 100 on:
constexpr size_t kTwoByteTag = 2;           // ... two
constexpr size_t kId = 5;                   // a varint of a non-negative int32, or of a length below 4 GiB
constexpr size_t kSigned = 10;              // a varint of an int32 that may be negative
constexpr size_t kWide = 10;                // a varint of a uint64
constexpr size_t kMessage = kTag + kId;     // tag and length of a message or a packed list
constexpr size_t kSmallMessage = kTag + 1;  // ... of less than 128 bytes

constexpr size_t kTimesBytes = kSmallMessage + (kTag + kId) + 5 * (kTag + 8);
// Of a stage: three numbers a part; its times are then no small message any more.
constexpr size_t kAccountBytes = kId + (kTwoByteTag + kId) + 3 * kStepParts * 8;
constexpr size_t kTensorBytes = kMessage + (kTag + kId) + (kMessage + 2 * kWide) + (kTag + kWide);
// protocol_version, run_id, epoch, sequence_number, tensor and the body's own tag and length
constexpr size_t kHeaderBytes = 2 * (kTag + kId) + (kTag + 8) + (kTag + kWide) + kTensorBytes + (kMessage + 1);

constexpr size_t kLogitBiasBytes = kSmallMessage + (kTag + kId) + (kTag + 4);
// Of lists that few sequences have.
constexpr size_t kRareBytes = kMaxLogitBias * kLogitBiasBytes + kMaxEndTokens * kId;
constexpr size_t kSamplingBytes =
    kMessage + 6 * (kTag + 4) + 3 * (kTag + kId) + 2 * (kTag + kSigned) + (kTag + 8) + kMessage + kRareBytes;
// Without the token ids, and without its shared blocks.
constexpr size_t kOpenBytes =
    kMessage + (kTag + kWide) + 2 * kMessage + kSamplingBytes + (kTwoByteTag + kId) + (kTwoByteTag + kWide);
constexpr size_t kDefinitionBytes = (kTwoByteTag + kId) + (kTag + kWide) + kMessage;  // without the program
// Without the entries of its lists, and without its blocks.
constexpr size_t kSliceBytes = kMessage + (kTag + kWide) + 2 * (kTag + kId) + 2 * kMessage + (kTag + 1);
constexpr size_t kStatesBytes = 2 * (kTwoByteTag + kId);          // the slots of a slice
constexpr size_t kBlockListBytes = kTwoByteTag + kId + kMessage;  // of one group, without the ids
// A void one has less.
constexpr size_t kSampledBytes = kMessage + (kTag + kWide) + 2 * (kTag + kId) + (kTag + 4) + (kTag + 1) +
                                 (kTwoByteTag + 1) + kMaxLogprobs * (kSmallMessage + (kTag + kId) + (kTag + 4));
// Without the entries of its lists.
constexpr size_t kTargetsBytes = kMessage + (kTag + kWide) + (kTag + kId) + 3 * kMessage + (kTag + 1);
constexpr size_t kTargetTopBytes = sizeof(int32_t) + sizeof(float);

size_t Count(int64_t value) {
  CHECK_GE(value, 0);
  return static_cast<size_t>(value);
}

size_t TimesBytes(const FrameLimits& limits) {
  return Count(limits.stages) * (kTimesBytes + (limits.step_account ? kAccountBytes : 0));
}

size_t ChecksumBytes(const FrameLimits& limits) {
  if (limits.checksum_layers == 0) return 0;
  return kTwoByteTag + kId + Count(limits.checksum_layers) * Count(limits.max_rows) * sizeof(uint32_t);
}

}  // namespace

int64_t FrameLimits::MaxFrees() const {
  int32_t fewest = group_blocks.empty() ? 0 : group_blocks.front();
  for (const int32_t blocks : group_blocks) fewest = std::min(fewest, blocks);
  return int64_t{fewest} + max_slices;
}

size_t FrameLimits::MaxStepHeaderBytes() const {
  CHECK_GT(block_tokens, 0);
  const size_t rows = Count(max_rows), slices = Count(max_slices);
  const size_t frees = kMessage + kWide * Count(MaxFrees());
  const size_t opens = slices * kOpenBytes + kId * Count(max_open_tokens);
  const size_t grammars =
      (kTwoByteTag + kId) + kWide * Count(MaxGrammars()) + slices * kDefinitionBytes + size_t{kMaxDefinitionBytes};
  const size_t new_blocks = Count(max_rows / block_tokens) + slices;  // a slice fills at most count / block_tokens + 1
  const size_t lists = kId * rows + kSigned * rows;                   // token ids, targets (kNoToken is negative)
  const size_t shared_blocks = Count(max_open_tokens / block_tokens);
  const size_t blocks = group_blocks.size() * (2 * slices * kBlockListBytes + kId * (new_blocks + shared_blocks));
  const size_t released = group_windows.empty() ? 0 : slices * (kMessage + kId * group_blocks.size());
  const size_t states = state_slots == 0 ? 0 : slices * kStatesBytes;
  const size_t guesses = most_guesses == 0 ? 0 : slices * (kTwoByteTag + 1);
  const size_t step =
      frees + grammars + opens + slices * kSliceBytes + lists + blocks + released + states + guesses + (kTag + 1);
  return internal::MaxPrefixBytes(kHeaderBytes + TimesBytes(*this) + ChecksumBytes(*this) + step);
}

size_t FrameLimits::MaxStepPayloadBytes() const { return Count(max_rows) * Count(hidden) * WireTypeBytes(wire_type); }

size_t FrameLimits::MaxStepFrameBytes() const { return MaxStepHeaderBytes() + MaxStepPayloadBytes(); }

size_t FrameLimits::MaxResultFrameBytes() const {
  const size_t row = sizeof(float) + Count(max_prompt_logprobs) * kTargetTopBytes;
  const size_t result = Count(max_slices) * (kSampledBytes + kTargetsBytes) + Count(max_rows) * row;
  return internal::MaxPrefixBytes(kHeaderBytes + TimesBytes(*this) + ChecksumBytes(*this) + result);
}

size_t FrameLimits::HiddenOutsideBytes(bool last_stage) const {
  const bool in_the_frame = !last_stage && wire_type == WireType::kF32;
  return in_the_frame ? 0 : Count(max_rows) * Count(hidden) * sizeof(float);
}

size_t FrameLimits::StageFrameBytes(bool last_stage, int32_t in_flight) const {
  const size_t step = MaxStepFrameBytes() - Count(max_slices) * kRareBytes - size_t{kMaxDefinitionBytes};
  const size_t sent = last_stage ? MaxResultFrameBytes() : step;
  return (Count(in_flight) + 1) * (step + sent) + HiddenOutsideBytes(last_stage);
}

}  // namespace stagecoach
