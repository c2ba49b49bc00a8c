#ifndef STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_
#define STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

// Where the bytes of one file of a model come from: a local file, or another host. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `out` from `offset`; the reader has checked both against the file's size. kDataLoss: the bytes are gone.
  virtual absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const = 0;

  // The bytes are damaged: a source that caches whole tensors drops its copy.
  virtual void Discard(uint64_t /*offset*/, uint64_t /*bytes*/) const {}
};

// An open file descriptor, closed with the object. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

// Fills `out` from `offset` of an open file by pread. kDataLoss: the file ends earlier: it has changed. Thread-safe.
absl::Status ReadFully(int descriptor, const std::string& path, uint64_t offset, absl::Span<uint8_t> out);

// Writes all bytes at `offset` of an open file by pwrite. Returns 0, or the system's error number. Thread-safe.
int PwriteFully(int descriptor, uint64_t offset, absl::Span<const uint8_t> bytes);

// The bytes of an open file; `path` is for messages.
class FileBytes : public ByteSource {
 public:
  FileBytes(FileDescriptor descriptor, std::string path) : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const override {
    return ReadFully(descriptor_.get(), path_, offset, out);
  }

 private:
  const FileDescriptor descriptor_;
  const std::string path_;
};

// FNV-1a, continued over more bytes.
inline constexpr uint64_t kHashStart = 0xcbf29ce484222325ull;
uint64_t HashBytes(uint64_t hash, absl::Span<const uint8_t> bytes);

// Reads a header from the start of a file in bounded chunks and hashes what it returns (FNV-1a, 64 bits). Never reads
// past the end, nor more than kMaxHeaderBytes. Errors name the field that was being read. Not thread-safe.
class HeaderReader {
 public:
  // Far above any model; bounds the memory that a hostile file can make us allocate.
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;

  // Reads start at multiples of this size.
  static constexpr uint64_t kChunkBytes = uint64_t{256} << 10;

  // `bytes` stays the caller's.
  HeaderReader(const ByteSource& bytes, std::string path, uint64_t file_bytes)
      : bytes_(bytes), path_(std::move(path)), file_bytes_(file_bytes) {}

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

#endif  // STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_
