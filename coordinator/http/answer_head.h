#ifndef STAGECOACH_COORDINATOR_HTTP_ANSWER_HEAD_H_
#define STAGECOACH_COORDINATOR_HTTP_ANSWER_HEAD_H_

// The head of an answer as bytes. Pure; private to this folder.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/http/http_request.h"

namespace stagecoach {

struct AnswerHead {
  int status = 200;
  absl::string_view content_type;  // empty: none
  int64_t content_length = -1;     // -1: none
  bool chunked = false;
  bool http_1_1 = true;    // the client's version
  bool keep_alive = true;  // the connection
  absl::string_view request_id;
};

// With what every answer has. Control characters in values, which would begin fields of their own, become blanks.
std::string WriteAnswerHead(const AnswerHead& head, const HttpHeaders& headers, const HttpHeaders& more_headers,
                            absl::Time now);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_ANSWER_HEAD_H_
