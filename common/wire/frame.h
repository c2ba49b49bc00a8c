#ifndef STAGECOACH_COMMON_WIRE_FRAME_H_
#define STAGECOACH_COMMON_WIRE_FRAME_H_

// Frames to bytes and back. A frame is one protobuf message (proto/frame.proto) whose payload comes last and starts at
// a multiple of 64 bytes; proto/README.md draws one. Decoding checks everything against what the receiver knows before
// it allocates or trusts anything, and never copies the payload. Errors: kInvalidArgument. Thread-safe.

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/crc32c.h"
#include "common/job/job_choices.h"
#include "common/step/step.h"
#include "common/wire/frame_buffer.h"
#include "proto/control.pb.h"
#include "proto/probe.pb.h"

namespace stagecoach {

inline constexpr uint32_t kProtocolVersion = 9;

// The job of a frame, and the arrangement of its stages, both from the assignment; zeros before that.
struct JobEpoch {
  uint64_t run_id = 0;
  uint32_t epoch = 0;
};

// What a receiver knows of a job; other frames are refused.
struct FrameLimits {
  JobEpoch job;
  int32_t stages = 0;
  int64_t hidden = 0;  // width of a hidden state
  int64_t vocab = 0;
  int64_t context = 0;                 // most tokens a sequence may have
  std::vector<int32_t> group_blocks;   // [groups] of the KV pools
  std::vector<int64_t> group_windows;  // [groups] 0: none; empty where no group has one
  int32_t state_slots = 0;             // of recurrent states; 0: slices name none
  int32_t most_guesses = 0;            // of a sequence in flight; 0: no slice is a guess
  int32_t block_tokens = 0;
  int32_t max_rows = 0;  // of a micro-batch
  int32_t max_slices = 0;
  int32_t max_prompt_logprobs = 0;  // most that a sequence asks for beside each of its targets
  int64_t max_open_tokens = 0;      // prompt and output tokens opened by one micro-batch
  WireType wire_type = WireType::kF32;
  int32_t checksum_layers = 0;  // of the model, where checksums of the layers travel with the frames; otherwise 0
  bool step_account = false;    // whether every stage's times come with an account

  // Derived limits. A micro-batch opens at most max_slices sequences and frees at most MaxFrees(): each of these was
  // opened earlier and holds a block of every group, unless no row of it was sent yet.
  int64_t MaxFrees() const;
  int64_t MaxGrammars() const { return MostGrammars(max_slices); }  // that the last stage has
  // Blocks of `rows` rows in every group. A slice brings BlocksFor(start + count) - BlocksFor(start) new ones of each;
  // with most_guesses, one of a sampled row may bring none.
  int64_t BlocksFor(int64_t rows) const { return (rows + block_tokens - 1) / block_tokens; }

  // Upper bounds from the longest varints. So much memory is reserved; only pages that frames reach are touched.
  size_t MaxStepHeaderBytes() const;
  size_t MaxStepPayloadBytes() const;
  size_t MaxStepFrameBytes() const;  // both, with padding: what a receive buffer needs
  size_t MaxResultFrameBytes() const;

  // Frames of a stage: in_flight + 1 received ones, as many outgoing ones, and float rows [max_rows, hidden] for what
  // no payload can hold. Without the most logit biases and without grammars, whose pages are rarely touched.
  size_t HiddenOutsideBytes(bool last_stage) const;
  size_t StageFrameBytes(bool last_stage, int32_t in_flight) const;
};
inline constexpr size_t kMaxSetupFrameBytes = 1 << 20;       // Hello, StageAssignment
inline constexpr size_t kMaxTelemetryFrameBytes = 16 << 10;  // StageReady, StageFailure, Heartbeat

// A step between two ranks. With a payload: hidden states [rows, hidden] in `wire_type`.
struct StepFrame {
  MicroBatch batch;
  std::vector<StageTimes> times;  // of the stages passed so far, in order
  // [layers passed so far][rows], if the job asks: see StepResult. The receiver knows which layers.
  std::vector<uint32_t> layer_checksums;
  bool has_hidden = false;           // every hop but coordinator to first stage
  absl::Span<const uint8_t> hidden;  // decoded frames: the payload in place; 64-byte aligned when the frame is
};

// Encodes into `buffer`. With frame.has_hidden the payload (batch.rows() * hidden * WireTypeBytes) is already at
// buffer->payload(), and the slices' token ids are left out, but for guesses; frame.hidden is ignored.
// kInvalidArgument, with nothing written: header or payload exceed the limits or the buffer.
absl::Status EncodeStep(const FrameLimits& limits, const StepFrame& frame, FrameBuffer* buffer);
// `expect_hidden`: whether this hop carries hidden states. `expected_number`: the next micro-batch's number. The
// receiver itself checks what depends on history: open sequences, next rows, free blocks.
absl::StatusOr<StepFrame> DecodeStep(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                     uint64_t expected_number, bool expect_hidden);

absl::Status EncodeResult(const FrameLimits& limits, const StepResult& result, FrameBuffer* buffer);
absl::StatusOr<StepResult> DecodeResult(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                        uint64_t expected_number);

// Set-up, telemetry and probe frames, with sequence number 0. `job` is FrameLimits', or {} while there is none (Hello,
// StageAssignment). An assignment's choices are valid; the receiver checks the values of other fields.
using ControlBody = std::variant<pb::Hello, pb::StageAssignment, pb::StageReady, pb::StageFailure, pb::Heartbeat,
                                 pb::ProbeOrder, pb::ProbeAnswer>;
absl::Status EncodeControl(const JobEpoch& job, const ControlBody& body, FrameBuffer* buffer);
absl::StatusOr<ControlBody> DecodeControl(const JobEpoch& job, absl::Span<const uint8_t> bytes);

// A ping of a probe, without a payload or with kPingPayloadBytes of any content, already at buffer->payload().
inline constexpr size_t kPingPayloadBytes = size_t{1} << 20;
inline constexpr size_t kMaxPingHeaderBytes = 256;
inline constexpr size_t kMaxPingFrameBytes = kPingPayloadBytes + kMaxPingHeaderBytes;
absl::Status EncodePing(const pb::ProbePing& ping, bool with_payload, FrameBuffer* buffer);
struct PingFrame {
  pb::ProbePing ping;
  bool has_payload = false;
};
absl::StatusOr<PingFrame> DecodePing(absl::Span<const uint8_t> bytes);

// Hidden-state codecs. f32 is a plain copy; bf16 rounds to nearest even. `count` elements.
void EncodeHidden(WireType type, const float* in, size_t count, uint8_t* out);
void DecodeHidden(WireType type, const uint8_t* in, size_t count, float* out);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_FRAME_H_
