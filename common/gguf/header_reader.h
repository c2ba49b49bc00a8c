#ifndef STAGECOACH_COMMON_GGUF_HEADER_READER_H_
#define STAGECOACH_COMMON_GGUF_HEADER_READER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/gguf/byte_source.h"

namespace stagecoach {

// FNV-1a, continued over more bytes.
inline constexpr uint64_t kHashStart = 0xcbf29ce484222325ull;
uint64_t HashBytes(uint64_t hash, absl::Span<const uint8_t> bytes);

// Reads a file from its start in bounded chunks, never past its end and never more than kMaxHeaderBytes, and hashes
// what it hands out (FNV-1a, 64 bits). Every read names the field it is for, and the field is in the error. Not
// thread-safe.
class HeaderReader {
 public:
  // No model's header comes near this; it bounds the memory a hostile file can make us take.
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;

  // What is read at once: every read starts at a multiple of it.
  static constexpr uint64_t kChunkBytes = uint64_t{256} << 10;

  // `bytes` stays the caller's.
  HeaderReader(const ByteSource& bytes, std::string path, uint64_t file_bytes);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return file_bytes_ - position_; }
  uint64_t hash() const { return hash_; }

  absl::Status ReadBytes(absl::string_view field, void* out, uint64_t bytes);
  absl::Status Skip(absl::string_view field, uint64_t bytes);

  // One little-endian number.
  template <typename T>
  absl::StatusOr<T> Read(absl::string_view field) {
    T value;
    if (absl::Status status = ReadBytes(field, &value, sizeof(value)); !status.ok()) return status;
    return value;
  }

  // A u64 length and that many bytes, at most max_bytes.
  absl::StatusOr<std::string> ReadString(absl::string_view field, uint64_t max_bytes);

  // "'<path>': <parts...>" with kInvalidArgument.
  template <typename... Parts>
  absl::Status Malformed(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("'", path_, "': ", parts...));
  }

 private:
  absl::Status CheckAvailable(absl::string_view field, uint64_t bytes) const;
  absl::Status Fill();  // reads the next chunk when the buffer is used up

  const ByteSource& bytes_;
  const std::string path_;
  const uint64_t file_bytes_;
  uint64_t position_ = 0;  // of the next byte to hand out
  uint64_t hash_ = kHashStart;
  std::vector<uint8_t> buffer_;
  size_t buffer_used_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_HEADER_READER_H_
