#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_HEAD_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_HEAD_H_

// The framing of messages: where a head ends and what it says, and bodies in chunks. Stricter than the standard
// wherever two readers could disagree about where a message ends. Pure functions of bytes; private to this folder.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/serve/http/http_request.h"

namespace stagecoach {

// Finds the end of a head in bytes that arrive in pieces. Lines end with CRLF; no other CR, NUL or folded field.
class HeadEnd {
 public:
  HeadEnd(int64_t most_bytes, int64_t most_first_line_bytes, int most_fields)
      : most_bytes_(most_bytes), most_first_line_bytes_(most_first_line_bytes), most_fields_(most_fields) {}

  // `bytes`: all since the head began; those of earlier calls are not looked at again. An error is final.
  std::optional<HttpError> Look(absl::string_view bytes);
  size_t size() const { return size_; }  // of the whole head, its empty line included; 0: there is more to come

 private:
  std::optional<HttpError> Line(absl::string_view line);

  int64_t most_bytes_, most_first_line_bytes_;
  int most_fields_;
  size_t line_begin_ = 0;  // of the line that has no end yet
  size_t looked_ = 0;
  int lines_ = 0;
  size_t size_ = 0;
};

struct RequestHead {
  std::string method;
  // Whom the client meant to reach: Host, or of a target with a scheme; absent: HTTP/1.0 without.
  std::optional<std::string> authority;
  std::string path;     // decoded, without the query
  HttpHeaders headers;  // names in lower case
  bool http_1_1 = true;
  bool keep_alive = true;
  bool expects_continue = false;
  bool expects_other = false;  // something else than 100-continue, of which this server knows nothing: 417
  bool chunked = false;
  int64_t content_length = -1;  // -1: not there
};

// Of a complete head.
std::optional<HttpError> ParseRequestHead(absl::string_view bytes, RequestHead* head);

struct ResponseHead {
  int status = 0;
  HttpHeaders headers;  // names in lower case
  bool keep_alive = true;
  bool chunked = false;
  int64_t content_length = -1;  // -1: not there
};

// The same for an answer. kDataLoss: what is wrong.
absl::StatusOr<ResponseHead> ParseResponseHead(absl::string_view bytes);

// The chunked framing of a body, read in pieces. (Beast 1.74's own asserts when the last chunk arrives in pieces, and
// puts no limit to a chunk's extension.) Trailers are dropped. Pure; private to this folder.
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

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_HEAD_H_
