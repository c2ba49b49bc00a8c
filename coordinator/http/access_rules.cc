#include "coordinator/http/access_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace stagecoach {
namespace {

// "[::1]:80" -> "[::1]", "localhost:80" -> "localhost".
absl::string_view WithoutPort(absl::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  if (colon == authority.npos || (bracket != authority.npos && colon < bracket)) return authority;
  return authority.substr(0, colon);
}

// Names of fields, as a browser lists them: they are said back to it.
bool IsFieldList(absl::string_view text) {
  return !text.empty() && text.size() <= 1024 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_, ", c);
  });
}

}  // namespace

bool AccessRules::AllowsHost(const std::optional<std::string>& authority) const {
  if (!check_hosts_ || !authority.has_value()) return true;
  const absl::string_view name = WithoutPort(*authority);
  for (const absl::string_view local : {"localhost", "127.0.0.1", "[::1]"}) {
    if (absl::EqualsIgnoreCase(name, local)) return true;
  }
  return std::any_of(allowed_hosts_.begin(), allowed_hosts_.end(), [&](const std::string& host) {
    return absl::EqualsIgnoreCase(host, name) || absl::EqualsIgnoreCase(host, *authority);
  });
}

bool AccessRules::Lists(absl::string_view origin) const {
  return !origin.empty() && std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

HttpHeaders AccessRules::CorsHeaders(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  const absl::string_view origin = request.header("origin");
  if (!Lists(origin)) return {{"Vary", "Origin"}};
  return {
      {"Vary", "Origin"},
      {"Access-Control-Allow-Origin", std::string(origin)},
      {"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after, x-should-retry, x-stagecoach-ignored"}};
}

std::optional<HttpResponse> AccessRules::Preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.header("access-control-request-method").empty() ||
      !Lists(request.header("origin"))) {
    return std::nullopt;
  }
  HttpResponse response{
      204, {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE"}, {"Access-Control-Max-Age", "600"}}, "", ""};
  const absl::string_view fields = request.header("access-control-request-headers");
  if (IsFieldList(fields)) response.headers.emplace_back("Access-Control-Allow-Headers", fields);
  // A page of a public address asks whether it may reach a server of this network: one that is listed may.
  if (absl::EqualsIgnoreCase(request.header("access-control-request-private-network"), "true")) {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return response;
}

}  // namespace stagecoach
