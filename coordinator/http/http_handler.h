#ifndef STAGECOACH_COORDINATOR_HTTP_HTTP_HANDLER_H_
#define STAGECOACH_COORDINATOR_HTTP_HTTP_HANDLER_H_

// What answers requests, and the request that it answers. Everything here happens on the server's I/O thread alone, and
// nothing here may block it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/http_error.h"
#include "coordinator/http/http_request.h"

namespace stagecoach {

// One request and its answer: either Respond, or BeginStream, any number of Write, and End. It is safe to use after the
// client has gone: then calls do nothing. What is written in one turn of the I/O thread (one OnRequest, one batch of
// posted functions, one tick) leaves in one piece. Without anybody holding it, an unanswered one is answered with 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual std::string TakeBody() = 0;  // the request's body, without a copy; it is empty from then on

  virtual void Respond(HttpResponse response) = 0;
  // The head and the first bytes leave at once.
  virtual void BeginStream(HttpStreamHead head) = 0;
  virtual void Write(absl::string_view bytes) = 0;
  virtual void End() = 0;  // the connection is kept for the next request
  // Cuts the connection: what a client takes for a failure. What was written before may be lost.
  virtual void Abort() = 0;

  // Replaces the stream's keep-alive bytes: those of some protocols depend on what was sent.
  virtual void set_keep_alive(std::string bytes) = 0;

  // Whether something can still be written: false after Respond, End and Abort, and once the client has gone or was
  // cut.
  virtual bool open() const = 0;

  // Bytes written and not yet taken by the system. From the high mark (256 KiB) until the low one (64 KiB) the client
  // is slow: few large events instead of many small ones, please. With more than the limit (1 MiB) and still growing,
  // it is cut.
  virtual size_t pending_bytes() const = 0;
  virtual bool slow() const = 0;
  // About how many bytes are kept back for a slow client, to be written later: they count beside pending_bytes for
  // what may wait for it, and for all clients.
  virtual void set_kept_bytes(int64_t bytes) = 0;

  // Called once, when the client has gone or was cut before the answer was complete; not for what the handler did
  // itself, and never from inside of a call above. Also when the server stops.
  virtual void set_on_closed(std::function<void()> on_closed) = 0;
  // Called each time that the client is no longer slow.
  virtual void set_on_drained(std::function<void()> on_drained) = 0;
};

// What to do with a request of which only the head is there.
struct HeadVerdict {
  std::optional<HttpResponse> refusal;  // answered at once, the body is not read
  int64_t max_body_bytes = -1;          // -1: the server's own limit; it can only be lower
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Before the body is read (and before 100-continue): the place to refuse by route, method, key, type and load. The
  // Host was checked, a CORS preflight answered.
  virtual HeadVerdict OnHead(const HttpRequest& request) = 0;
  // The request is complete. Answer it now, or keep the exchange and answer later.
  virtual void OnRequest(std::shared_ptr<HttpExchange> exchange) = 0;
  // Each request as its answer begins, those that the server or OnHead refused included: for counters and the access
  // log. What could not be understood has an empty method and path.
  virtual void OnAnswer(const HttpRequest& /*request*/, int /*status*/) {}
  // One that the server refuses itself, before OnAnswer: the handler saw at most its head.
  virtual void OnRefusal(const HttpRequest& /*request*/, const HttpError& /*error*/) {}
  virtual void OnTick() {}  // each second
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_HTTP_HANDLER_H_
