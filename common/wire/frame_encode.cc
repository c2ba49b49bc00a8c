#include <algorithm>
#include <variant>

#include "common/wire/frame.h"
#include "common/wire/frame_header.h"
#include "common/wire/frame_layout.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

template <typename T>
void Put(const std::vector<T>& values, google::protobuf::RepeatedField<T>* out) {
  out->Add(values.begin(), values.end());
}

void Put(const SequenceSlice& slice, bool with_tokens, pb::SequenceSlice* out) {
  out->set_sequence(slice.sequence);
  out->set_start(slice.start);
  out->set_count(slice.count);
  if (with_tokens) Put(slice.tokens, out->mutable_tokens());
  for (const std::vector<BlockId>& blocks : slice.new_blocks) Put(blocks, out->add_new_blocks()->mutable_blocks());
  out->set_sample(slice.sample);
  Put(slice.targets, out->mutable_targets());
  Put(slice.released_blocks, out->mutable_released_blocks());
}

void Put(const MicroBatch& batch, bool with_tokens, pb::StepHeader* out) {
  out->mutable_free()->Add(batch.free.begin(), batch.free.end());
  for (const OpenSequence& open : batch.open) {
    pb::OpenSequence* entry = out->add_open();
    entry->set_sequence(open.sequence);
    Put(open.prompt, entry->mutable_prompt());
    Put(open.output, entry->mutable_output());
    *entry->mutable_sampling() = ToProto(open.sampling);
    for (const std::vector<BlockId>& blocks : open.shared_blocks) {
      Put(blocks, entry->add_shared_blocks()->mutable_blocks());
    }
    entry->set_shared_rows(open.shared_rows);
  }
  for (const SequenceSlice& slice : batch.slices) Put(slice, with_tokens, out->add_slices());
  out->set_shutdown(batch.shutdown);
}

void Put(const StepResult& result, pb::StepResult* out) {
  for (const SampledToken& token : result.sampled) *out->add_sampled() = ToProto(token);
  for (const TargetLogprobs& targets : result.targets) *out->add_targets() = ToProto(targets);
}

void Put(const std::vector<StageTimes>& times, pb::FrameHeader* out) {
  for (const StageTimes& stage : times) {
    pb::StageTimes* entry = out->add_times();
    entry->set_stage(stage.stage);
    entry->set_received_us(stage.received_us);
    entry->set_start_us(stage.start_us);
    entry->set_end_us(stage.end_us);
    entry->set_send_us(stage.send_us);
    entry->set_send_start_us(stage.send_start_us);
  }
}

}  // namespace

absl::Status EncodeStep(const FrameLimits& limits, const StepFrame& frame, FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(limits.job, frame.batch.number);
  size_t payload_bytes = 0;
  if (frame.has_hidden) {
    const uint64_t rows = static_cast<uint64_t>(frame.batch.rows());
    const uint64_t hidden = static_cast<uint64_t>(limits.hidden);
    payload_bytes = rows * hidden * WireTypeBytes(limits.wire_type);
    if (payload_bytes > limits.MaxStepPayloadBytes()) {
      return internal::FieldError("step.slices rows in all", rows, absl::StrCat("at most ", limits.max_rows));
    }
    pb::TensorDescription* tensor = header.mutable_tensor();
    tensor->set_data_type(limits.wire_type == WireType::kF32 ? pb::DATA_TYPE_F32 : pb::DATA_TYPE_BF16);
    tensor->add_shape(rows);
    tensor->add_shape(hidden);
    tensor->set_payload_bytes(payload_bytes);
  }
  Put(frame.times, &header);
  Put(frame.layer_checksums, header.mutable_layer_checksums());
  Put(frame.batch, !frame.has_hidden, header.mutable_step());
  return internal::WriteFrame(header, limits.MaxStepHeaderBytes(), frame.has_hidden, payload_bytes, buffer);
}

absl::Status EncodeResult(const FrameLimits& limits, const StepResult& result, FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(limits.job, result.number);
  Put(result.times, &header);
  Put(result.layer_checksums, header.mutable_layer_checksums());
  Put(result, header.mutable_result());
  return internal::WriteFrame(header, limits.MaxResultFrameBytes(), false, 0, buffer);
}

absl::Status EncodeControl(const JobEpoch& job, const ControlBody& body, FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(job, 0);
  size_t max_bytes = kMaxTelemetryFrameBytes;
  if (const auto* hello = std::get_if<pb::Hello>(&body)) {
    *header.mutable_hello() = *hello;
    max_bytes = kMaxSetupFrameBytes;
  } else if (const auto* assignment = std::get_if<pb::StageAssignment>(&body)) {
    *header.mutable_assignment() = *assignment;
    max_bytes = kMaxSetupFrameBytes;
  } else if (const auto* ready = std::get_if<pb::StageReady>(&body)) {
    *header.mutable_ready() = *ready;
  } else if (const auto* failure = std::get_if<pb::StageFailure>(&body)) {
    *header.mutable_failure() = *failure;
  } else if (const auto* order = std::get_if<pb::ProbeOrder>(&body)) {
    *header.mutable_probe_order() = *order;
    max_bytes = kMaxSetupFrameBytes;
  } else if (const auto* answer = std::get_if<pb::ProbeAnswer>(&body)) {
    *header.mutable_probe_answer() = *answer;
  } else {
    *header.mutable_heartbeat() = std::get<pb::Heartbeat>(body);
  }
  return internal::WriteFrame(header, max_bytes, false, 0, buffer);
}

absl::Status EncodePing(const pb::ProbePing& ping, bool with_payload, FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader({}, 0);
  *header.mutable_probe_ping() = ping;
  const size_t payload_bytes = with_payload ? kPingPayloadBytes : 0;
  if (with_payload) {
    pb::TensorDescription* tensor = header.mutable_tensor();
    tensor->set_data_type(pb::DATA_TYPE_F32);
    tensor->add_shape(payload_bytes / sizeof(float));
    tensor->set_payload_bytes(payload_bytes);
  }
  return internal::WriteFrame(header, kMaxPingHeaderBytes, with_payload, payload_bytes, buffer);
}

}  // namespace stagecoach
