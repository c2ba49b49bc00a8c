#include "common/wire/frame_layout.h"

#include <cstring>

#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"

namespace stagecoach::internal {
namespace {

// Field number and wire type of proto/frame.proto, as their one-byte tags.
constexpr uint8_t kCrcTag = (1 << 3) | 5;
constexpr uint8_t kHeaderTag = (2 << 3) | 2;
constexpr uint8_t kPaddingTag = (14 << 3) | 2;
constexpr uint8_t kPayloadTag = (15 << 3) | 2;
constexpr size_t kCrcFieldBytes = 1 + 4;
constexpr size_t kMaxVarintBytes = 10;

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

uint8_t* PutVarint(uint64_t value, uint8_t* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<uint8_t>(value | 0x80);
  *out++ = static_cast<uint8_t>(value);
  return out;
}

// Reads the fields of a frame one after another.
class Cursor {
 public:
  explicit Cursor(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }

  absl::Status Tag(absl::string_view field, uint8_t tag) {
    if (left() == 0) {
      return FieldError(field, "missing (the frame ends before it)", absl::StrCat("tag ", absl::Hex(tag)));
    }
    const uint8_t found = bytes_[offset_];
    if (found != tag) {
      return FieldError(field, absl::StrCat("tag ", absl::Hex(found)), absl::StrCat("tag ", absl::Hex(tag)));
    }
    ++offset_;
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Span<const uint8_t>> Take(absl::string_view field, uint64_t length) {
    if (length > left()) {
      return FieldError(field, absl::StrCat(length, " bytes long"),
                        absl::StrCat("at most the ", left(), " bytes left of the frame"));
    }
    const absl::Span<const uint8_t> taken = bytes_.subspan(offset_, length);
    offset_ += length;
    return taken;
  }

  // Tag, length and content of a length-delimited field.
  absl::StatusOr<absl::Span<const uint8_t>> Field(absl::string_view field, uint8_t tag) {
    RETURN_IF_ERROR(Tag(field, tag));
    ASSIGN_OR_RETURN(const uint64_t length, Varint(field));
    return Take(field, length);
  }

 private:
  absl::StatusOr<uint64_t> Varint(absl::string_view field) {
    uint64_t value = 0;
    for (size_t i = 0; i < kMaxVarintBytes && left() > 0; ++i) {
      const uint8_t byte = bytes_[offset_++];
      if (i == kMaxVarintBytes - 1 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      if (byte == 0 && i > 0) break;
      return value;
    }
    return FieldError(absl::StrCat(field, " length"), "cut, too long or not of the shortest form", "a varint");
  }

  absl::Span<const uint8_t> bytes_;
  size_t offset_ = 0;
};

absl::Status CheckPadding(absl::Span<const uint8_t> padding) {
  if (padding.size() >= kBufferAlignment) {
    return FieldError("padding", absl::StrCat(padding.size(), " bytes long"),
                      absl::StrCat("less than ", kBufferAlignment));
  }
  for (size_t i = 0; i < padding.size(); ++i) {
    if (padding[i] != 0) return FieldError(absl::StrCat("padding[", i, "]"), static_cast<int>(padding[i]), 0);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FieldError(absl::string_view field, const absl::AlphaNum& found, const absl::AlphaNum& expected) {
  return absl::InvalidArgumentError(absl::StrCat("frame field '", field, "' is ", found, ", expected ", expected));
}

size_t MaxPrefixBytes(size_t header_bytes) {
  return RoundUp(kCrcFieldBytes + 1 + VarintBytes(header_bytes) + header_bytes + 2 + 1 + kMaxVarintBytes,
                 kBufferAlignment);
}

absl::Status WriteFrame(const pb::FrameHeader& header, size_t max_prefix_bytes, bool has_payload, size_t payload_bytes,
                        FrameBuffer* buffer) {
  const size_t header_bytes = header.ByteSizeLong();
  const size_t front_bytes = kCrcFieldBytes + 1 + VarintBytes(header_bytes) + header_bytes;
  const size_t unpadded_bytes = has_payload ? front_bytes + 2 + 1 + VarintBytes(payload_bytes) : front_bytes;
  const size_t prefix_bytes = has_payload ? RoundUp(unpadded_bytes, kBufferAlignment) : unpadded_bytes;
  const size_t padding_bytes = prefix_bytes - unpadded_bytes;
  const size_t room = std::min(max_prefix_bytes, buffer->header_capacity());
  if (prefix_bytes > room) {
    return FieldError("header", absl::StrCat(header_bytes, " bytes (", prefix_bytes, " with framing)"),
                      absl::StrCat("at most ", room));
  }
  if (payload_bytes > buffer->payload_capacity()) {
    return FieldError("payload", absl::StrCat(payload_bytes, " bytes long"),
                      absl::StrCat("at most ", buffer->payload_capacity()));
  }
  uint8_t* out = buffer->SetMessage(prefix_bytes, payload_bytes);
  uint8_t* crc_out = out + 1;
  *out = kCrcTag;
  out += kCrcFieldBytes;
  *out++ = kHeaderTag;
  out = PutVarint(header_bytes, out);
  header.SerializeWithCachedSizesToArray(out);
  const uint32_t crc = Crc32c({out, header_bytes});
  std::memcpy(crc_out, &crc, sizeof crc);
  out += header_bytes;
  if (has_payload) {
    *out++ = kPaddingTag;
    *out++ = static_cast<uint8_t>(padding_bytes);
    std::memset(out, 0, padding_bytes);
    out += padding_bytes;
    *out++ = kPayloadTag;
    PutVarint(payload_bytes, out);
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameParts> SplitFrame(absl::Span<const uint8_t> bytes, size_t max_prefix_bytes) {
  Cursor cursor(bytes);
  RETURN_IF_ERROR(cursor.Tag("header_crc32c", kCrcTag));
  ASSIGN_OR_RETURN(const absl::Span<const uint8_t> crc_bytes, cursor.Take("header_crc32c", sizeof(uint32_t)));
  FrameParts parts;
  ASSIGN_OR_RETURN(parts.header, cursor.Field("header", kHeaderTag));
  if (cursor.offset() > max_prefix_bytes) {
    return FieldError("header", absl::StrCat(parts.header.size(), " bytes long"),
                      absl::StrCat("at most ", max_prefix_bytes, " with framing"));
  }
  uint32_t expected_crc;
  std::memcpy(&expected_crc, crc_bytes.data(), sizeof expected_crc);
  const uint32_t crc = Crc32c(parts.header);
  if (crc != expected_crc) {
    return FieldError("header_crc32c", absl::Hex(expected_crc, absl::kZeroPad8),
                      absl::StrCat(absl::Hex(crc, absl::kZeroPad8), " (the checksum of the header that arrived)"));
  }
  if (cursor.left() == 0) return parts;

  ASSIGN_OR_RETURN(const absl::Span<const uint8_t> padding, cursor.Field("padding", kPaddingTag));
  RETURN_IF_ERROR(CheckPadding(padding));
  ASSIGN_OR_RETURN(parts.payload, cursor.Field("payload", kPayloadTag));
  parts.has_payload = true;
  const size_t payload_offset = cursor.offset() - parts.payload.size();
  if (payload_offset % kBufferAlignment != 0) {
    return FieldError("payload offset", payload_offset, absl::StrCat("a multiple of ", kBufferAlignment));
  }
  if (cursor.left() != 0) {
    return FieldError("payload", absl::StrCat("followed by ", cursor.left(), " bytes"), "the last field");
  }
  return parts;
}

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
