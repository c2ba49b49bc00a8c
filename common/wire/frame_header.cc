#include "common/wire/frame_header.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach::internal {

pb::FrameHeader StartHeader(const JobEpoch& job, uint64_t number) {
  pb::FrameHeader header;
  header.set_protocol_version(kProtocolVersion);
  header.set_run_id(job.run_id);
  header.set_epoch(job.epoch);
  header.set_sequence_number(number);
  return header;
}

absl::StatusOr<OpenedFrame> OpenFrame(const JobEpoch& job, uint64_t number, absl::Span<const uint8_t> bytes,
                                      size_t max_prefix_bytes) {
  OpenedFrame frame;
  ASSIGN_OR_RETURN(frame.parts, SplitFrame(bytes, max_prefix_bytes));
  const pb::FrameHeader& header = frame.header;
  if (!frame.header.ParseFromArray(frame.parts.header.data(), static_cast<int>(frame.parts.header.size()))) {
    return FieldError("header", absl::StrCat(frame.parts.header.size(), " bytes that do not parse"), "a FrameHeader");
  }
  if (header.protocol_version() != kProtocolVersion) {
    return FieldError("protocol_version", header.protocol_version(),
                      absl::StrCat(kProtocolVersion, " (run one build of the programs on every host)"));
  }
  if (header.run_id() != job.run_id) return FieldError("run_id", header.run_id(), job.run_id);
  if (header.epoch() != job.epoch) return FieldError("epoch", header.epoch(), job.epoch);
  if (header.sequence_number() != number) return FieldError("sequence_number", header.sequence_number(), number);
  return frame;
}

absl::Status CheckBody(const pb::FrameHeader& header, pb::FrameHeader::BodyCase expected, absl::string_view name) {
  if (header.body_case() == expected) return absl::OkStatus();
  return FieldError("body", absl::StrCat("field ", static_cast<int>(header.body_case())),
                    absl::StrCat("field ", static_cast<int>(expected), " (", name, ")"));
}

absl::Status CheckNoTensor(const OpenedFrame& frame) {
  if (frame.header.has_tensor()) return FieldError("tensor", "present", "absent on this hop");
  if (frame.parts.has_payload) return FieldError("payload", "present", "absent on this hop");
  return absl::OkStatus();
}

}  // namespace stagecoach::internal
