#ifndef STAGECOACH_COMMON_GGUF_FILE_IO_H_
#define STAGECOACH_COMMON_GGUF_FILE_IO_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/gguf/byte_source.h"

namespace stagecoach {

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

// Fills `out` from `offset` of an open file by pread. kDataLoss when the file ends before that, which after the checks
// at opening means that it changed. Thread-safe.
absl::Status ReadFully(int descriptor, const std::string& path, uint64_t offset, absl::Span<uint8_t> out);

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

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_FILE_IO_H_
