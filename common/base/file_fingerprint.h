#ifndef STAGECOACH_COMMON_BASE_FILE_FINGERPRINT_H_
#define STAGECOACH_COMMON_BASE_FILE_FINGERPRINT_H_

#include <cstdint>

namespace stagecoach {

// What must not change under a running job: compared in the handshake and at every relaunch.
struct FileFingerprint {
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;   // modification time, nanoseconds since the epoch
  uint64_t header_hash = 0;  // of all bytes before the tensor data
  uint64_t sample_hash = 0;  // of some bytes of the tensor data, spread over all of it
  friend bool operator==(const FileFingerprint&, const FileFingerprint&) = default;
};

// Whether two files are copies of each other: copies have times of their own.
constexpr bool SameContent(FileFingerprint a, const FileFingerprint& b) {
  a.modified_ns = b.modified_ns;
  return a == b;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_FILE_FINGERPRINT_H_
