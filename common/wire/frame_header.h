#ifndef STAGECOACH_COMMON_WIRE_FRAME_HEADER_H_
#define STAGECOACH_COMMON_WIRE_FRAME_HEADER_H_

// The header that all frames share, and what is checked of every one. For use inside common/wire.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"
#include "proto/frame.pb.h"

namespace stagecoach::internal {

// A header without tensor, times and body.
pb::FrameHeader StartHeader(const JobEpoch& job, uint64_t number);

struct OpenedFrame {
  FrameParts parts;
  pb::FrameHeader header;
};

// The part that all frames share: framing, checksum, version, job and number. Protobuf sees at most `max_prefix_bytes`
// bytes.
absl::StatusOr<OpenedFrame> OpenFrame(const JobEpoch& job, uint64_t number, absl::Span<const uint8_t> bytes,
                                      size_t max_prefix_bytes);

absl::Status CheckBody(const pb::FrameHeader& header, pb::FrameHeader::BodyCase expected, absl::string_view name);
absl::Status CheckNoTensor(const OpenedFrame& frame);

}  // namespace stagecoach::internal

#endif  // STAGECOACH_COMMON_WIRE_FRAME_HEADER_H_
