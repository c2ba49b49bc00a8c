#ifndef STAGECOACH_COORDINATOR_HTTP_HTTP_ERROR_H_
#define STAGECOACH_COORDINATOR_HTTP_HTTP_ERROR_H_

// Refusals that the server makes itself, before a handler sees the request.

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/http_request.h"

namespace stagecoach {

struct HttpError {
  int status = 400;
  std::string code;     // "header_too_large"
  std::string message;  // one sentence for people; may hold what the client sent
};

// The body of such an answer, JSON. The request is as far as it was read: with an empty path when its head was not.
using HttpErrorWriter = std::function<std::string(const HttpRequest& request, const HttpError& error)>;

// {"error":{"message":…,"type":…,"param":null,"code":…}}; below /v1/messages
// {"type":"error","error":{"type":…,"message":…},"request_id":…}.
std::string WriteHttpError(const HttpRequest& request, const HttpError& error);

// "Not Found"; "Status" for one that has no name here.
absl::string_view StatusPhrase(int status);

// Whether the same request can succeed when it comes again. Where it cannot, an answer says x-should-retry: false:
// clients repeat 408, 409, 429 and all from 500 on by themselves.
bool RetryCanSucceed(int status);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_HTTP_ERROR_H_
