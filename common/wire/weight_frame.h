#ifndef STAGECOACH_COMMON_WIRE_WEIGHT_FRAME_H_
#define STAGECOACH_COMMON_WIRE_WEIGHT_FRAME_H_

// Frames of the weights channel (proto/frame.proto): a loading stage asks the coordinator for ranges of the model's
// files, and gets them in the order of its requests. Both carry the stage's own count. Thread-safe; decoding errors are
// kInvalidArgument with what, which, expected and found.

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/frame_buffer.h"

namespace stagecoach {

// Fixed limits: bytes of a request, and requests in flight, which is also the number of posted receives.
inline constexpr size_t kMaxWeightChunkBytes = size_t{1} << 20;
inline constexpr int kWeightCredit = 8;
inline constexpr size_t kMaxWeightHeaderBytes = 4096;  // with framing; a refusal's message included
inline constexpr size_t kMaxWeightFrameBytes = kMaxWeightHeaderBytes + kMaxWeightChunkBytes;

// Bytes of one of the model's files.
struct WeightRange {
  int32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t end() const { return offset + bytes; }
  friend bool operator==(const WeightRange&, const WeightRange&) = default;
  friend bool operator<(const WeightRange& a, const WeightRange& b) {
    return std::tie(a.shard, a.offset, a.bytes) < std::tie(b.shard, b.offset, b.bytes);
  }
};

// A decoded range has 1 to kMaxWeightChunkBytes bytes, a shard >= 0 and no overflow. The coordinator checks whether the
// stage may have it.
absl::Status EncodeWeightRequest(const JobEpoch& job, uint64_t number, const WeightRange& range, FrameBuffer* buffer);
absl::StatusOr<WeightRange> DecodeWeightRequest(const JobEpoch& job, absl::Span<const uint8_t> bytes,
                                                uint64_t expected_number);

// The range's bytes must already be at buffer->payload(), and `payload_crc32c` be theirs.
absl::Status EncodeWeightChunk(const JobEpoch& job, uint64_t number, const WeightRange& range, uint32_t payload_crc32c,
                               FrameBuffer* buffer);
absl::Status EncodeWeightRefusal(const JobEpoch& job, uint64_t number, const absl::Status& refusal,
                                 FrameBuffer* buffer);

struct WeightChunk {
  absl::Span<const uint8_t> payload;  // in place; 64-byte aligned when the frame is
  uint32_t crc32c = 0;                // of the payload as it arrived
};
// The chunk, or why there is none. Its range must be `expected`, and its bytes have the checksum that they left with.
absl::StatusOr<std::variant<WeightChunk, absl::Status>> DecodeWeightAnswer(const JobEpoch& job,
                                                                           absl::Span<const uint8_t> bytes,
                                                                           uint64_t expected_number,
                                                                           const WeightRange& expected);

// What one stage was sent, as each of the two sides has it. Not thread-safe.
class StreamedRanges {
 public:
  void Add(const WeightRange& range, uint32_t crc32c);  // again: the later one counts
  uint64_t bytes() const { return bytes_; }
  // CRC-32C over the ranges in file order: shard, offset, bytes, CRC-32C of each, 8 bytes each, little-endian.
  uint32_t Checksum() const;

 private:
  std::map<WeightRange, uint32_t> ranges_;
  uint64_t bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_WEIGHT_FRAME_H_
