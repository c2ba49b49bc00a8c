#ifndef STAGECOACH_COMMON_WIRE_FRAME_LAYOUT_H_
#define STAGECOACH_COMMON_WIRE_FRAME_LAYOUT_H_

// The outer message of a frame (proto/frame.proto), written and walked by hand so that the payload is never copied:
//
//   0d  <4 bytes>                 header_crc32c
//   12  <length> <header>         header
//   72  <length, 1 byte> <zeros>  padding: 0 to 63 zero bytes, so that the payload starts at a multiple of 64
//   7a  <length> <payload>        payload: the last bytes of the frame
//
// A frame without a tensor ends after the header. Lengths are varints of the shortest form. For use inside common/wire.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/frame_buffer.h"
#include "proto/frame.pb.h"

namespace stagecoach::internal {

// "frame field '<field>' is <found>, expected <expected>".
absl::Status FieldError(absl::string_view field, const absl::AlphaNum& found, const absl::AlphaNum& expected);

struct FrameParts {
  absl::Span<const uint8_t> header;
  bool has_payload = false;
  absl::Span<const uint8_t> payload;
};

// Most bytes before the payload for a header of up to `header_bytes`; a multiple of 64.
size_t MaxPrefixBytes(size_t header_bytes);

// Writes everything before the payload into `buffer`. `has_payload`: padding and a payload of `payload_bytes`, already
// in the buffer, follow. kInvalidArgument, with nothing written: too large a prefix or payload.
absl::Status WriteFrame(const pb::FrameHeader& header, size_t max_prefix_bytes, bool has_payload, size_t payload_bytes,
                        FrameBuffer* buffer);

// Finds the parts of a frame; checks order, lengths, padding and the header's checksum. Reads only `bytes`.
absl::StatusOr<FrameParts> SplitFrame(absl::Span<const uint8_t> bytes, size_t max_prefix_bytes);

// A header without tensor, times and body.
pb::FrameHeader StartHeader(const JobEpoch& job, uint64_t number);

struct OpenedFrame {
  FrameParts parts;
  pb::FrameHeader header;
};

// The part that all frames share: framing, checksum, version, job, number. Protobuf sees at most `max_prefix_bytes`.
absl::StatusOr<OpenedFrame> OpenFrame(const JobEpoch& job, uint64_t number, absl::Span<const uint8_t> bytes,
                                      size_t max_prefix_bytes);

absl::Status CheckBody(const pb::FrameHeader& header, pb::FrameHeader::BodyCase expected, absl::string_view name);
absl::Status CheckNoTensor(const OpenedFrame& frame);

}  // namespace stagecoach::internal

#endif  // STAGECOACH_COMMON_WIRE_FRAME_LAYOUT_H_
