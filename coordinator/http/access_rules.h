#ifndef STAGECOACH_COORDINATOR_HTTP_ACCESS_RULES_H_
#define STAGECOACH_COORDINATOR_HTTP_ACCESS_RULES_H_

// Who may ask: by the name that the client used for this server, which a browser that was lured here gives away, and by
// the page that the browser shows. Pure; private to this folder.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/http/http_request.h"

namespace stagecoach {

class AccessRules {
 public:
  // Without `check_hosts`, and without a list, every host is good.
  AccessRules(bool check_hosts, std::vector<std::string> allowed_hosts, std::vector<std::string> origins)
      : check_hosts_(check_hosts || !allowed_hosts.empty()),
        allowed_hosts_(std::move(allowed_hosts)),
        origins_(std::move(origins)) {}

  // `authority`: a name or address, with or without a port; absent from a client of HTTP/1.0, which no browser is.
  bool AllowsHost(const std::optional<std::string>& authority) const;

  // What every answer to this request has: nothing but for a listed Origin.
  HttpHeaders CorsHeaders(const HttpRequest& request) const;
  // The answer to a browser that asks whether it may send a request, from a listed Origin; absent when it is none.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;

 private:
  bool Lists(absl::string_view origin) const;

  bool check_hosts_;
  std::vector<std::string> allowed_hosts_, origins_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_ACCESS_RULES_H_
