#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_CLIENT_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_CLIENT_H_

// A blocking HTTP/1.1 client: one connection, one request at a time, the answer's body as it arrives. Each thread makes
// its own. No TLS, no redirects. Nothing throws.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/serve/http/http_request.h"

struct addrinfo;

namespace stagecoach {

struct HttpUrl {
  std::string host;  // a name or an address, without brackets
  int port = 80;
  std::string path;  // with the query; "" or begins with '/'; never ends with '/'
};

// http://host[:port][/path]. kInvalidArgument: what is wrong; for https that a proxy is needed.
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url);
// The same for a server of OpenAI's API. Drops a final /v1, with which other clients' URLs end: here paths begin so.
absl::StatusOr<HttpUrl> ParseApiUrl(absl::string_view url);
// http://host:port/path, an IPv6 address in brackets.
std::string UrlText(const HttpUrl& url);

struct HttpClientOptions {
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration silence_timeout = absl::Seconds(300);  // without a byte of the answer, or with none of ours taken
  HttpHeaders headers;                                  // sent with every request
  int cancel_descriptor = -1;  // readable: the call ends with kCancelled; what can be read there is left there
  int64_t most_answer_bytes = 64 << 20;  // of a body that is collected
};

struct HttpCall {
  std::string method = "GET";
  std::string path = "/";  // behind the URL's path
  HttpHeaders headers;
  std::string body;  // with Content-Type: application/json unless the headers have one
  // Of an answer of 200 to 299: its body in the pieces that it arrives in; `at_us` is MonotonicUs() of the arrival.
  // False: enough, the connection is closed and the call ends OK. Without it, and for other answers, the body is
  // collected.
  std::function<bool(absl::string_view bytes, int64_t at_us)> on_body;
};

struct HttpReply {
  bool succeeded() const { return status / 100 == 2; }

  int status = 0;
  HttpHeaders headers;   // names in lower case
  std::string body;      // collected
  bool complete = true;  // false: on_body had enough
  int64_t sent_us = 0;   // MonotonicUs() before the first byte of the request was sent, a connection made
  int64_t head_us = 0;   // of the arrival of the answer's head
  int64_t end_us = 0;    // of its last byte
};

class HttpClient {
 public:
  HttpClient(HttpUrl url, HttpClientOptions options);
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;

  // One request, OK with any HTTP status. Keeps the connection between calls, and reconnects if the server closed it.
  // kUnavailable: no connection, or it was lost before the answer began; kDeadlineExceeded; kCancelled; kDataLoss: not
  // HTTP, or cut short; kResourceExhausted: too long an answer. The message names the address.
  absl::StatusOr<HttpReply> Call(const HttpCall& call);

  void Close();

 private:
  class Answer;

  absl::Status Connect();
  absl::Status ConnectTo(const addrinfo& address, absl::Time deadline);
  absl::Status Wait(short events, absl::Time deadline);
  absl::Status Send(absl::string_view bytes);
  absl::StatusOr<size_t> Receive(char* bytes, size_t size);  // 0: the server closed it
  absl::StatusOr<HttpReply> CallOnce(const HttpCall& call, bool* began);
  std::string Request(const HttpCall& call) const;
  absl::Status Failed(absl::StatusCode code, absl::string_view what) const;

  HttpUrl url_;
  HttpClientOptions options_;
  int descriptor_ = -1;
};

struct SseEvent {
  std::string event;  // of `event:`; empty without one
  std::string data;   // the `data:` lines, joined by newlines

  bool done() const { return data == "[DONE]"; }  // the end, as chat and completions say it
};

// Splits a text/event-stream body, which arrives in any pieces, into its events. Not thread-safe.
class SseReader {
 public:
  // Calls `on_event` for every event that is complete. Comments, ids and events without data are dropped.
  // kResourceExhausted: an event longer than `most_event_bytes`; once not OK, always the same.
  explicit SseReader(size_t most_event_bytes = 16 << 20) : most_event_bytes_(most_event_bytes) {}
  absl::Status Append(absl::string_view bytes, const std::function<void(const SseEvent&)>& on_event);

 private:
  void Line(absl::string_view line, const std::function<void(const SseEvent&)>& on_event);

  const size_t most_event_bytes_;
  std::string line_;  // what came of a line without its end
  bool after_return_ = false;
  SseEvent event_;
  bool has_data_ = false;
  absl::Status status_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_HTTP_CLIENT_H_
