#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/http/http_client.h"

namespace stagecoach {
namespace {

absl::Status BadUrl(absl::string_view url, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("URL '", url, "': ", what, "; expected http://host[:port][/path]"));
}

}  // namespace

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url) {
  if (absl::StartsWithIgnoreCase(url, "https:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "URL '", url, "': TLS is not spoken here; use a proxy that does, and the http:// address of that"));
  }
  absl::string_view rest = url;
  if (!absl::StartsWithIgnoreCase(rest, "http://")) return BadUrl(url, "it does not begin with http://");
  rest.remove_prefix(7);
  for (const char c : rest) {
    if (c <= ' ' || c == '\x7f' || c == '#' || c == '@')
      return BadUrl(url, "it has a character that does not belong there");
  }
  const size_t slash = rest.find_first_of("/?");
  absl::string_view path = slash == rest.npos ? "" : rest.substr(slash);
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  if (absl::StartsWith(path, "?")) return BadUrl(url, "its path does not begin with '/'");
  absl::string_view host = rest.substr(0, slash);
  absl::string_view port = "80";
  const size_t colon = host.rfind(':');
  if (colon != host.npos && (host.find(']') == host.npos || host.find(']') < colon)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) return BadUrl(url, "a bracket is missing");
  HttpUrl parsed{std::string(host), 0, std::string(path)};
  if (host.empty()) return BadUrl(url, "the host is missing");
  if (!absl::SimpleAtoi(port, &parsed.port) || parsed.port < 1 || parsed.port > 65535) {
    return BadUrl(url, "the port is no number from 1 to 65535");
  }
  return parsed;
}

absl::StatusOr<HttpUrl> ParseApiUrl(absl::string_view url) {
  absl::StatusOr<HttpUrl> parsed = ParseHttpUrl(url);
  if (!parsed.ok()) return parsed;
  absl::string_view path = parsed->path;
  if (!absl::ConsumeSuffix(&path, "/v1")) return parsed;
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  return HttpUrl{parsed->host, parsed->port, std::string(path)};
}

std::string UrlText(const HttpUrl& url) {
  const bool brackets = absl::StrContains(url.host, ":");
  return absl::StrCat("http://", brackets ? "[" : "", url.host, brackets ? "]" : "", ":", url.port, url.path);
}

}  // namespace stagecoach
