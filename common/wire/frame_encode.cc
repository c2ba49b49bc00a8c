#include <bit>
#include <cstring>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/wire/frame.h"
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
  if (with_tokens || slice.guess) Put(slice.tokens, out->mutable_tokens());
  for (const std::vector<BlockId>& blocks : slice.new_blocks) Put(blocks, out->add_new_blocks()->mutable_blocks());
  out->set_sample(slice.sample);
  Put(slice.targets, out->mutable_targets());
  Put(slice.released_blocks, out->mutable_released_blocks());
  out->set_state_read(slice.state_read + 1);  // 0, which takes no bytes: none
  out->set_state_write(slice.state_write + 1);
  out->set_guess(slice.guess);
}

void Put(const MicroBatch& batch, bool with_tokens, pb::StepHeader* out) {
  out->mutable_free()->Add(batch.free.begin(), batch.free.end());
  out->mutable_drop_grammars()->Add(batch.drop_grammars.begin(), batch.drop_grammars.end());
  for (const GrammarDefinition& definition : batch.define_grammars) {
    pb::GrammarDefinition* entry = out->add_define_grammars();
    entry->set_id(definition.id);
    entry->set_program(definition.program);
  }
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
    entry->set_grammar(open.grammar);
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
    for (const StepPartTotals& part : stage.account) {
      for (const int64_t number : {part.busy_ns, part.wait_ns, part.bytes}) entry->add_account(number);
    }
  }
}

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // Rounding could carry a NaN's mantissa into infinity: a NaN is cut instead, and kept quiet.
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
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
  const auto& message = std::visit(
      [](const google::protobuf::Message& m) -> const auto& { return m; }, body);
  const google::protobuf::OneofDescriptor* bodies = pb::FrameHeader::descriptor()->FindOneofByName("body");
  for (int i = 0; i < bodies->field_count(); ++i) {  // each of these messages is one body alone
    if (bodies->field(i)->message_type() != message.GetDescriptor()) continue;
    header.GetReflection()->MutableMessage(&header, bodies->field(i))->CopyFrom(message);
  }
  const bool large = header.has_hello() || header.has_assignment() || header.has_probe_order();
  return internal::WriteFrame(header, large ? kMaxSetupFrameBytes : kMaxTelemetryFrameBytes, false, 0, buffer);
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

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and its payloads are used in place");

void EncodeHidden(WireType type, const float* in, size_t count, uint8_t* out) {
  if (count == 0) return;
  if (type == WireType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = ToBf16(in[i]);
    std::memcpy(out + 2 * i, &half, sizeof half);
  }
}

void DecodeHidden(WireType type, const uint8_t* in, size_t count, float* out) {
  if (count == 0) return;
  if (type == WireType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof half);
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
}

}  // namespace stagecoach
