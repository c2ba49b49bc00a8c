#include "coordinator/serve/http/http_request.h"

#include "absl/strings/match.h"

namespace stagecoach {

absl::string_view FindHeader(const HttpHeaders& headers, absl::string_view name) {
  for (const auto& [other, value] : headers) {
    if (absl::EqualsIgnoreCase(other, name)) return value;
  }
  return "";
}

bool RetryCanSucceed(int status) { return status < 400 || status == 408 || status == 429 || status == 503; }

absl::string_view StatusPhrase(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Status";
  }
}

}  // namespace stagecoach
