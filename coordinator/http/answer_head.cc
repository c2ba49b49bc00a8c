#include "coordinator/http/answer_head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/http/http_error.h"

namespace stagecoach {
namespace {

void AddField(absl::string_view name, absl::string_view value, std::string* text) {
  absl::StrAppend(text, name, ": ");
  for (const char c : value) text->push_back(absl::ascii_iscntrl(c) ? ' ' : c);
  absl::StrAppend(text, "\r\n");
}

}  // namespace

std::string WriteAnswerHead(const AnswerHead& head, const HttpHeaders& headers, const HttpHeaders& more_headers,
                            absl::Time now) {
  // An answer to HTTP/1.0 says 1.1 too: that is what the server speaks.
  std::string text = absl::StrCat("HTTP/1.1 ", head.status, " ", StatusPhrase(head.status), "\r\n");
  AddField("Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone()), &text);
  if (!head.content_type.empty()) AddField("Content-Type", head.content_type, &text);
  if (head.content_length >= 0) AddField("Content-Length", absl::StrCat(head.content_length), &text);
  if (head.chunked) AddField("Transfer-Encoding", "chunked", &text);
  if (!head.keep_alive) {
    AddField("Connection", "close", &text);
  } else if (!head.http_1_1) {
    AddField("Connection", "keep-alive", &text);
  }
  if (!head.request_id.empty()) {
    AddField("x-request-id", head.request_id, &text);
    AddField("request-id", head.request_id, &text);
  }
  AddField("X-Content-Type-Options", "nosniff", &text);
  for (const auto& [name, value] : headers) AddField(name, value, &text);
  for (const auto& [name, value] : more_headers) AddField(name, value, &text);
  return text + "\r\n";
}

}  // namespace stagecoach
