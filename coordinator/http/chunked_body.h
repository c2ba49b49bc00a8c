#ifndef STAGECOACH_COORDINATOR_HTTP_CHUNKED_BODY_H_
#define STAGECOACH_COORDINATOR_HTTP_CHUNKED_BODY_H_

// The chunked framing of a body, read in pieces. (Beast 1.74's own asserts when the last chunk arrives in pieces, and
// puts no limit to a chunk's extension.) Trailers are dropped. Pure; private to this folder.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

class ChunkedBody {
 public:
  // Sizes, extensions and trailers have lines of at most this many bytes, trailers at most that many in all.
  static constexpr size_t kMostLineBytes = 4096;

  // Reads `bytes` behind those of the calls before, appends to `body` what they hold of it, and says how many of them
  // belong to it: all, or, once done(), those up to its end. kInvalidArgument: what is wrong; kResourceExhausted: the
  // body is longer than `most_bytes` in all. An error is final.
  absl::StatusOr<size_t> Read(absl::string_view bytes, int64_t most_bytes, std::string* body);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kSize, kData, kDataEnd, kTrailer, kDone };
  absl::Status TakeLine(int64_t most_bytes);

  State state_ = State::kSize;
  std::string line_;       // begun, without its end
  uint64_t left_ = 0;      // of the chunk
  int64_t announced_ = 0;  // bytes of all chunks so far
  size_t trailer_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_CHUNKED_BODY_H_
