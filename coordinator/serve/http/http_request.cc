#include "coordinator/serve/http/http_request.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

// What a client sent may stand in a message; it is no reason for more of JSON than this.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(absl::ascii_isprint(c) ? c : '?');
  }
  return quoted + '"';
}

absl::string_view ErrorType(int status, bool anthropic) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 408: return "timeout_error";
    case 404: return anthropic ? "not_found_error" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 503: return anthropic ? "overloaded_error" : "unavailable_error";
    default: break;
  }
  if (status < 500) return "invalid_request_error";
  return anthropic ? "api_error" : "server_error";
}

}  // namespace

absl::string_view FindHeader(const HttpHeaders& headers, absl::string_view name) {
  for (const auto& [other, value] : headers) {
    if (absl::EqualsIgnoreCase(other, name)) return value;
  }
  return "";
}

std::string WriteHttpError(const HttpRequest& request, const HttpError& error) {
  const bool anthropic = absl::StartsWith(request.path, "/v1/messages");
  const std::string type = Quoted(ErrorType(error.status, anthropic));
  if (anthropic) {
    return absl::StrCat(R"({"type":"error","error":{"type":)", type, R"(,"message":)", Quoted(error.message),
                        R"(},"request_id":)", Quoted(request.id), "}");
  }
  return absl::StrCat(R"({"error":{"message":)", Quoted(error.message), R"(,"type":)", type, R"(,"param":null,"code":)",
                      Quoted(error.code), "}}");
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
