#include "coordinator/serve/service/start_page.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace stagecoach {
namespace {

constexpr char kStyle[] =
    "body{max-width:44rem;margin:3rem auto;padding:0 1rem;font:1rem/1.5 system-ui,sans-serif;color-scheme:light dark}"
    "dt{font-weight:600}dd{margin:0 0 .5rem}code,pre{font:.9rem/1.5 ui-monospace,monospace}pre{overflow-x:auto}";

struct Link {
  const char* path;
  const char* text;
};
constexpr Link kLinks[] = {{"/health", "ready, loading, recovering or draining, for load balancers"},
                           {"/v1/models", "the models, as OpenAI's clients ask for them"},
                           {"/api/cluster", "the cluster's state: stages, hosts, KV blocks, requests"},
                           {"/metrics", "for Prometheus"},
                           {"/version", "of this program"}};

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Term(absl::string_view name, absl::string_view html) {
  return absl::StrCat("<dt>", name, "</dt><dd>", html, "</dd>\n");
}

}  // namespace

std::string BaseUrlOf(const HttpRequest& request, const std::string& address) {
  const absl::string_view host = request.header("host");
  if (host.empty()) return address;
  const bool tls = absl::EqualsIgnoreCase(request.header("x-forwarded-proto"), "https");
  return absl::StrCat(tls ? "https://" : "http://", host);
}

HttpResponse StartPage(const StartPageFacts& facts) {
  std::string state = absl::StrCat("<strong>", Escaped(facts.state), "</strong>");
  if (!facts.detail.empty()) absl::StrAppend(&state, ": ", Escaped(facts.detail));
  std::string list = Term("Model", Escaped(absl::StrJoin(facts.models, ", "))) + Term("State", state);
  if (facts.context_tokens > 0) list += Term("Context", absl::StrCat(facts.context_tokens, " tokens"));
  if (facts.stages > 0) list += Term("Stages", absl::StrCat(facts.stages));
  list += Term("Requests",
               absl::StrCat(facts.calls, " open; ", facts.waiting, " of ", facts.places, " places in the queue taken"));
  list += Term("Base URL for OpenAI's clients", absl::StrCat("<code>", Escaped(facts.base_url), "/v1</code>"));
  std::string links;
  for (const Link& link : kLinks) {
    absl::StrAppend(&links, "<li><a href=\"", link.path, "\">", link.path, "</a> ", link.text, "</li>\n");
  }
  const std::string example =
      absl::StrCat("curl ", facts.base_url, "/v1/chat/completions -H 'Content-Type: application/json' \\\n",
                   R"(  -d '{"messages": [{"role": "user", "content": "Hello"}]}')");
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Cache-Control", "no-store"},
                      {"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"}};
  response.body = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
      "<meta name=\"viewport\" content=\"width=device-width\">\n",
      facts.settled ? "" : "<meta http-equiv=\"refresh\" content=\"5\">\n",
      "<title>Stagecoach: ", Escaped(facts.models.empty() ? "" : facts.models.front()), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n<h1>Stagecoach</h1>\n<p>A server of a large language model that runs on a cluster "
      "of ",
      "CPU machines, version ", Escaped(facts.version), ".</p>\n<dl>\n", list, "</dl>\n<pre>", Escaped(example),
      "</pre>\n<ul>\n", links,
      "</ul>\n<p>Also POST: /v1/completions, /v1/responses, /v1/messages, /tokenize, /detokenize, /apply-template. "
      "Where ",
      "the server has keys, what computes or tells about the model asks for one.</p>\n</body>\n</html>\n");
  return response;
}

}  // namespace stagecoach
