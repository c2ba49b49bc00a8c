#ifndef STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_
#define STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace stagecoach {

// Where the bytes of one file of a model come from: a file of this host (file_io.h), or another host that has it.
// Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `out` with the bytes from `offset` on, which the reader has checked against the file's size. kDataLoss when
  // they are not to be had any more.
  virtual absl::Status Read(uint64_t offset, absl::Span<uint8_t> out) const = 0;

  // What was read here is damaged: a source that keeps copies of whole tensors does not use this one again.
  virtual void Discard(uint64_t /*offset*/, uint64_t /*bytes*/) const {}
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_BYTE_SOURCE_H_
