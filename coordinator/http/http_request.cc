#include "coordinator/http/http_request.h"

#include "absl/strings/match.h"

namespace stagecoach {

absl::string_view FindHeader(const HttpHeaders& headers, absl::string_view name) {
  for (const auto& [other, value] : headers) {
    if (absl::EqualsIgnoreCase(other, name)) return value;
  }
  return "";
}

}  // namespace stagecoach
