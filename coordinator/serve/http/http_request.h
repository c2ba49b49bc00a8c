#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_REQUEST_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_REQUEST_H_

// A request as the server has checked it, and an answer as a handler gives it. Plain values; no sockets, no Boost.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/serve/http/api_keys.h"

namespace stagecoach {

// In the order they came. Names of a request are in lower case; values have no blanks around them.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The value of the first field with that name (any case), empty without one. Valid as long as the headers are.
absl::string_view FindHeader(const HttpHeaders& headers, absl::string_view name);

struct HttpRequest {
  // For x-request-id: the client's own when it fits [A-Za-z0-9._-]{1,128}, else drawn.
  std::string id;
  std::string method;  // "GET" for a HEAD too: the server leaves the body out of its answer
  bool head = false;   // it was a HEAD
  // Begins with '/', percent-decoded, without the query; printable ASCII without a segment '.' or '..'.
  std::string path;
  HttpHeaders headers;
  std::string body;             // empty in OnHead; never longer than allowed there
  int64_t content_length = -1;  // as announced; -1: not announced (chunked, or no body)
  const ApiKey* key = nullptr;  // of the server's keys, as long-lived; null: none was shown, or a wrong one
  std::string tenant;  // the key's name; "anonymous" where the server has no keys; empty: the key is missing or wrong
  int64_t arrived_us = 0;  // MonotonicUs() of its first byte

  absl::string_view header(absl::string_view name) const { return FindHeader(headers, name); }
};

// Content-Length, Connection, Date, the request ids, X-Content-Type-Options and CORS are the server's.
struct HttpResponse {
  int status = 200;
  HttpHeaders headers;                            // beside the server's own; names as they are to be sent
  std::string content_type = "application/json";  // empty: none (204)
  std::string body;
};

// How a stream of server-sent events begins.
struct HttpStreamHead {
  HttpHeaders headers;         // beside Cache-Control and X-Accel-Buffering
  std::string first_bytes;     // leave together with the head
  std::string ping = ":\n\n";  // sent after each sse_ping_interval without a byte; by default a comment
};

// Refusals that the server makes itself, before a handler sees the request.
struct HttpError {
  int status = 400;
  std::string code;     // "header_too_large"
  std::string message;  // one sentence for people; may hold what the client sent
};

// "Not Found"; "Status" for one that has no name here.
absl::string_view StatusPhrase(int status);

// Whether a retry can succeed. If not: x-should-retry: false, as clients retry 408, 409, 429 and all from 500 on.
bool RetryCanSucceed(int status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_REQUEST_H_
