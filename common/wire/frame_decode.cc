#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"
#include "common/wire/frame_check.h"
#include "common/wire/frame_header.h"
#include "common/wire/frame_layout.h"
#include "common/wire/job_proto.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

using internal::CheckBody;
using internal::CheckNoTensor;
using internal::FieldError;
using internal::OpenedFrame;
using internal::OpenFrame;

absl::Status CheckTensor(const FrameLimits& limits, const OpenedFrame& frame, int32_t rows) {
  if (!frame.header.has_tensor()) return FieldError("tensor", "absent", "present on this hop");
  const pb::TensorDescription& tensor = frame.header.tensor();
  const pb::DataType type = limits.wire_type == WireType::kF32 ? pb::DATA_TYPE_F32 : pb::DATA_TYPE_BF16;
  if (tensor.data_type() != type) {
    return FieldError("tensor.data_type", static_cast<int>(tensor.data_type()),
                      absl::StrCat(static_cast<int>(type), " (", WireTypeName(limits.wire_type), ")"));
  }
  if (tensor.shape_size() != 2) {
    return FieldError("tensor.shape", absl::StrCat(tensor.shape_size(), " dimensions"), "2 dimensions");
  }
  const uint64_t hidden = static_cast<uint64_t>(limits.hidden);
  if (tensor.shape(0) != static_cast<uint64_t>(rows) || tensor.shape(1) != hidden) {
    return FieldError("tensor.shape", absl::StrCat("[", tensor.shape(0), ", ", tensor.shape(1), "]"),
                      absl::StrCat("[", rows, ", ", hidden, "] (rows of the slices, hidden width)"));
  }
  const uint64_t payload_bytes = static_cast<uint64_t>(rows) * hidden * WireTypeBytes(limits.wire_type);
  if (tensor.payload_bytes() != payload_bytes) {
    return FieldError("tensor.payload_bytes", tensor.payload_bytes(), payload_bytes);
  }
  if (!frame.parts.has_payload) return FieldError("payload", "absent", absl::StrCat(payload_bytes, " bytes long"));
  if (frame.parts.payload.size() != payload_bytes) {
    return FieldError("payload", absl::StrCat(frame.parts.payload.size(), " bytes long"),
                      absl::StrCat(payload_bytes, " bytes"));
  }
  return absl::OkStatus();
}

template <typename T>
std::vector<T> Get(const google::protobuf::RepeatedField<T>& values) {
  return std::vector<T>(values.begin(), values.end());
}

SequenceSlice Get(const pb::SequenceSlice& in) {
  SequenceSlice slice;
  slice.sequence = in.sequence();
  slice.start = in.start();
  slice.count = in.count();
  slice.tokens = Get(in.tokens());
  slice.new_blocks.reserve(static_cast<size_t>(in.new_blocks_size()));
  for (const pb::BlockList& list : in.new_blocks()) slice.new_blocks.push_back(Get(list.blocks()));
  slice.sample = in.sample();
  slice.targets = Get(in.targets());
  slice.released_blocks = Get(in.released_blocks());
  return slice;
}

MicroBatch Get(uint64_t number, const pb::StepHeader& in) {
  MicroBatch batch;
  batch.number = number;
  batch.free.assign(in.free().begin(), in.free().end());
  for (const pb::OpenSequence& open : in.open()) {
    OpenSequence& entry = batch.open.emplace_back();
    entry = {open.sequence(), Get(open.prompt()), Get(open.output()), FromProto(open.sampling())};
    entry.shared_blocks.reserve(static_cast<size_t>(open.shared_blocks_size()));
    for (const pb::BlockList& list : open.shared_blocks()) entry.shared_blocks.push_back(Get(list.blocks()));
    entry.shared_rows = open.shared_rows();
  }
  for (const pb::SequenceSlice& slice : in.slices()) batch.slices.push_back(Get(slice));
  batch.shutdown = in.shutdown();
  return batch;
}

std::vector<StageTimes> GetTimes(const pb::FrameHeader& in) {
  std::vector<StageTimes> times;
  for (const pb::StageTimes& entry : in.times()) {
    times.push_back(
        {entry.stage(), entry.received_us(), entry.start_us(), entry.end_us(), entry.send_us(), entry.send_start_us()});
  }
  return times;
}

StepResult Get(uint64_t number, const pb::StepResult& in) {
  StepResult result;
  result.number = number;
  for (const pb::SampledToken& token : in.sampled()) result.sampled.push_back(FromProto(token));
  for (const pb::TargetLogprobs& targets : in.targets()) result.targets.push_back(FromProto(targets));
  return result;
}

}  // namespace

absl::StatusOr<StepFrame> DecodeStep(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                     uint64_t expected_number, bool expect_hidden) {
  ASSIGN_OR_RETURN(const OpenedFrame opened,
                   OpenFrame(limits.job, expected_number, bytes, limits.MaxStepHeaderBytes()));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kStep, "step"));
  StepFrame frame;
  frame.batch = Get(expected_number, opened.header.step());
  frame.times = GetTimes(opened.header);
  frame.layer_checksums = Get(opened.header.layer_checksums());
  RETURN_IF_ERROR(internal::CheckMicroBatch(limits, frame.batch, expect_hidden));
  // The coordinator's frames come from no stage; those of a stage have passed it and its predecessors, and not the last
  // one.
  const size_t most = limits.stages > 0 ? static_cast<size_t>(limits.stages - 1) : 0;
  RETURN_IF_ERROR(internal::CheckTimes(frame.times, expect_hidden ? 1 : 0, expect_hidden ? most : 0));
  RETURN_IF_ERROR(internal::CheckChecksums(limits, frame.layer_checksums.size(), frame.batch.rows()));
  if (expect_hidden) {
    RETURN_IF_ERROR(CheckTensor(limits, opened, frame.batch.rows()));
    frame.has_hidden = true;
    frame.hidden = opened.parts.payload;
  } else {
    RETURN_IF_ERROR(CheckNoTensor(opened));
  }
  return frame;
}

absl::StatusOr<StepResult> DecodeResult(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                        uint64_t expected_number) {
  ASSIGN_OR_RETURN(const OpenedFrame opened,
                   OpenFrame(limits.job, expected_number, bytes, limits.MaxResultFrameBytes()));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kResult, "result"));
  RETURN_IF_ERROR(CheckNoTensor(opened));
  StepResult result = Get(expected_number, opened.header.result());
  result.times = GetTimes(opened.header);
  result.layer_checksums = Get(opened.header.layer_checksums());
  RETURN_IF_ERROR(internal::CheckResult(limits, result));
  return result;
}

absl::Status CheckChoices(const pb::StageAssignment& assignment) {
  RETURN_IF_ERROR(FromProto(assignment.kv_type()).status());
  RETURN_IF_ERROR(FromProto(assignment.wire_type()).status());
  RETURN_IF_ERROR(FromProto(assignment.weights()).status());
  return FromProto(assignment.isa()).status();
}

absl::StatusOr<ControlBody> DecodeControl(const JobEpoch& job, absl::Span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const OpenedFrame opened, OpenFrame(job, 0, bytes, kMaxSetupFrameBytes));
  RETURN_IF_ERROR(CheckNoTensor(opened));
  switch (opened.header.body_case()) {
    case pb::FrameHeader::kHello: return opened.header.hello();
    case pb::FrameHeader::kAssignment: {
      RETURN_IF_ERROR(CheckChoices(opened.header.assignment()));
      return opened.header.assignment();
    }
    case pb::FrameHeader::kReady: return opened.header.ready();
    case pb::FrameHeader::kFailure: return opened.header.failure();
    case pb::FrameHeader::kHeartbeat: return opened.header.heartbeat();
    case pb::FrameHeader::kProbeOrder: return opened.header.probe_order();
    case pb::FrameHeader::kProbeAnswer: return opened.header.probe_answer();
    default:
      return FieldError("body", absl::StrCat("field ", static_cast<int>(opened.header.body_case())),
                        "hello, assignment, ready, failure, heartbeat or what a probe sends");
  }
}

absl::StatusOr<PingFrame> DecodePing(absl::Span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const OpenedFrame opened, OpenFrame({}, 0, bytes, kMaxPingHeaderBytes));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kProbePing, "ping"));
  if (opened.header.has_tensor() != opened.parts.has_payload) {
    return FieldError("payload", opened.parts.has_payload ? "present" : "absent",
                      "present where a tensor is described");
  }
  if (opened.parts.has_payload && opened.parts.payload.size() != kPingPayloadBytes) {
    return FieldError("payload", absl::StrCat(opened.parts.payload.size(), " bytes long"),
                      absl::StrCat(kPingPayloadBytes, " bytes"));
  }
  return PingFrame{opened.header.probe_ping(), opened.parts.has_payload};
}

}  // namespace stagecoach
