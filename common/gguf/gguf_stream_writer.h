#ifndef STAGECOACH_COMMON_GGUF_GGUF_STREAM_WRITER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_STREAM_WRITER_H_

// Writes a GGUF file of any size piece by piece, in any order and from many threads. The file grows under a temporary
// name beside its own and takes that name when it is complete, so that nobody ever opens half a model.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/file_io.h"
#include "common/gguf/gguf_raw_metadata.h"

namespace stagecoach {

struct GgufStreamTensor {
  std::string name;
  std::vector<int64_t> dims;  // dims[0] is the row length
  uint32_t type_id = 0;       // a known id of at most 0xffff; decides the size with the dims
};

class GgufStreamWriter {
 public:
  // Creates the temporary file, writes the header and takes the disk space for all of it. The alignment is that of the
  // key general.alignment, else 32. Errors: kResourceExhausted when the space is not there, kNotFound when the
  // directory is not there or cannot be written.
  static absl::StatusOr<std::unique_ptr<GgufStreamWriter>> Create(const std::string& path,
                                                                  absl::Span<const GgufRawEntry> metadata,
                                                                  absl::Span<const GgufStreamTensor> tensors);
  ~GgufStreamWriter();  // without Finish the temporary file is removed
  GgufStreamWriter(const GgufStreamWriter&) = delete;

  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t tensor_bytes(size_t tensor) const { return places_[tensor].bytes; }

  // Writes part of a tensor's data, `offset` bytes into it; it must lie within the tensor (checked). Thread-safe.
  absl::Status Write(size_t tensor, uint64_t offset, absl::Span<const uint8_t> data);

  // Flushes the file to disk and gives it its name. Every byte of every tensor must have been written (checked by
  // count). kAlreadyExists when there is a file of that name, unless it may be replaced.
  absl::Status Finish(bool replace);

 private:
  struct Place {
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
  };
  struct Counter;

  GgufStreamWriter(std::string path, std::string temporary_path, FileDescriptor file);
  std::string PlaceTensors(absl::Span<const GgufRawEntry> metadata, absl::Span<const GgufStreamTensor> tensors);
  absl::Status WriteAt(uint64_t offset, absl::Span<const uint8_t> data);
  absl::Status Failed(const char* what, int error) const;

  const std::string path_;
  const std::string temporary_path_;
  FileDescriptor file_;
  std::vector<Place> places_;
  uint64_t file_bytes_ = 0;
  uint64_t data_bytes_ = 0;           // of all tensors, without the padding
  std::unique_ptr<Counter> written_;  // data bytes so far
  bool finished_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_STREAM_WRITER_H_
