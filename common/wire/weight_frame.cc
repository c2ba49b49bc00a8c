#include "common/wire/weight_frame.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/frame_layout.h"

namespace stagecoach {
namespace {

using internal::FieldError;

constexpr size_t kMaxRefusalBytes = kMaxWeightHeaderBytes / 2;

void Put(const WeightRange& range, pb::WeightRange* out) {
  out->set_shard(range.shard);
  out->set_offset(range.offset);
  out->set_bytes(range.bytes);
}

std::string Text(const WeightRange& range) {
  return absl::StrCat("bytes [", range.offset, ", ", range.end(), ") of shard ", range.shard);
}

absl::Status CheckChunkPayload(const internal::OpenedFrame& frame, uint64_t bytes) {
  const pb::TensorDescription& tensor = frame.header.tensor();
  if (tensor.data_type() != pb::DATA_TYPE_BYTES || tensor.shape_size() != 1 || tensor.shape(0) != bytes ||
      tensor.payload_bytes() != bytes) {
    return FieldError("tensor", absl::StrCat("{", tensor.ShortDebugString(), "}"),
                      absl::StrCat(bytes, " plain bytes, as in the range"));
  }
  if (!frame.parts.has_payload || frame.parts.payload.size() != bytes) {
    return FieldError("payload", absl::StrCat(frame.parts.payload.size(), " bytes long"), absl::StrCat(bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeWeightRequest(const JobEpoch& job, uint64_t number, const WeightRange& range, FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(job, number);
  Put(range, header.mutable_weight_request());
  return internal::WriteFrame(header, kMaxWeightHeaderBytes, false, 0, buffer);
}

absl::StatusOr<WeightRange> DecodeWeightRequest(const JobEpoch& job, absl::Span<const uint8_t> bytes,
                                                uint64_t expected_number) {
  ASSIGN_OR_RETURN(const internal::OpenedFrame frame,
                   internal::OpenFrame(job, expected_number, bytes, kMaxWeightHeaderBytes));
  RETURN_IF_ERROR(internal::CheckBody(frame.header, pb::FrameHeader::kWeightRequest, "weight_request"));
  RETURN_IF_ERROR(internal::CheckNoTensor(frame));
  const pb::WeightRange& request = frame.header.weight_request();
  if (request.shard() < 0) return FieldError("weight_request.shard", request.shard(), "at least 0");
  if (request.bytes() < 1 || request.bytes() > kMaxWeightChunkBytes) {
    return FieldError("weight_request.bytes", request.bytes(), absl::StrCat("1 to ", kMaxWeightChunkBytes));
  }
  if (request.offset() > UINT64_MAX - request.bytes()) {
    return FieldError("weight_request.offset", request.offset(),
                      absl::StrCat("at most 2^64 - 1 less the ", request.bytes(), " bytes"));
  }
  return WeightRange{request.shard(), request.offset(), request.bytes()};
}

absl::Status EncodeWeightChunk(const JobEpoch& job, uint64_t number, const WeightRange& range, uint32_t payload_crc32c,
                               FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(job, number);
  header.mutable_tensor()->set_data_type(pb::DATA_TYPE_BYTES);
  header.mutable_tensor()->add_shape(range.bytes);
  header.mutable_tensor()->set_payload_bytes(range.bytes);
  Put(range, header.mutable_weight_chunk()->mutable_range());
  header.mutable_weight_chunk()->set_payload_crc32c(payload_crc32c);
  return internal::WriteFrame(header, kMaxWeightHeaderBytes, true, range.bytes, buffer);
}

absl::Status EncodeWeightRefusal(const JobEpoch& job, uint64_t number, const absl::Status& refusal,
                                 FrameBuffer* buffer) {
  pb::FrameHeader header = internal::StartHeader(job, number);
  header.mutable_weight_refusal()->set_code(static_cast<int>(refusal.code()));
  header.mutable_weight_refusal()->set_message(std::string(refusal.message().substr(0, kMaxRefusalBytes)));
  return internal::WriteFrame(header, kMaxWeightHeaderBytes, false, 0, buffer);
}

absl::StatusOr<std::variant<WeightChunk, absl::Status>> DecodeWeightAnswer(const JobEpoch& job,
                                                                           absl::Span<const uint8_t> bytes,
                                                                           uint64_t expected_number,
                                                                           const WeightRange& expected) {
  using Answer = std::variant<WeightChunk, absl::Status>;
  ASSIGN_OR_RETURN(const internal::OpenedFrame frame,
                   internal::OpenFrame(job, expected_number, bytes, kMaxWeightHeaderBytes));
  if (frame.header.has_weight_refusal()) {
    RETURN_IF_ERROR(internal::CheckNoTensor(frame));
    const pb::WeightRefusal& refusal = frame.header.weight_refusal();
    const absl::Status status(static_cast<absl::StatusCode>(refusal.code()), refusal.message());
    if (status.ok()) return FieldError("weight_refusal.code", "0", "an error");
    return Answer(status);
  }
  RETURN_IF_ERROR(internal::CheckBody(frame.header, pb::FrameHeader::kWeightChunk, "weight_chunk"));
  const pb::WeightChunk& chunk = frame.header.weight_chunk();
  const WeightRange range = {chunk.range().shard(), chunk.range().offset(), chunk.range().bytes()};
  if (range != expected) return FieldError("weight_chunk.range", Text(range), Text(expected));
  RETURN_IF_ERROR(CheckChunkPayload(frame, range.bytes));
  const uint32_t crc = Crc32c(frame.parts.payload);
  if (crc != chunk.payload_crc32c()) {
    return FieldError("weight_chunk.payload_crc32c", absl::StrCat(absl::Hex(chunk.payload_crc32c(), absl::kZeroPad8)),
                      absl::StrCat(absl::Hex(crc, absl::kZeroPad8), " (the checksum of the bytes that arrived)"));
  }
  return Answer(WeightChunk{frame.parts.payload, crc});
}

void StreamedRanges::Add(const WeightRange& range, uint32_t crc32c) {
  const auto [entry, is_new] = ranges_.insert_or_assign(range, crc32c);
  if (is_new) bytes_ += range.bytes;
}

uint32_t StreamedRanges::Checksum() const {
  std::vector<uint8_t> list;
  list.reserve(ranges_.size() * 4 * sizeof(uint64_t));
  for (const auto& [range, crc32c] : ranges_) {
    for (const uint64_t number : {static_cast<uint64_t>(range.shard), range.offset, range.bytes, uint64_t{crc32c}}) {
      for (int byte = 0; byte < 8; ++byte) list.push_back(static_cast<uint8_t>(number >> (8 * byte)));
    }
  }
  return Crc32c(list);
}

}  // namespace stagecoach
