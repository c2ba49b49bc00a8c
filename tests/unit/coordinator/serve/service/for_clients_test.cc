// What clients and browsers are told beside answers.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/service/start_page.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ForClients, AnErrorSaysItsReasonAsATextAndWhetherToComeAgainOnEveryRoute) {
  ScriptedService service;
  const auto call = [&service](const char* method, const std::string& path, const std::string& body) {
    HttpCall call;
    call.method = method;
    call.path = path;
    call.body = body;
    if (!body.empty()) call.headers = {{"Content-Type", "application/json"}};
    return service.Call(call);
  };
  struct {
    const char* method;
    const char* path;
    const char* body;
    int status;
  } const wrongs[] = {
      {"POST", "/v1/chat/completions", R"({"messages":7})", 400},
      {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400},
      {"POST", "/v1/completions/", R"({"prompt":{}})", 400},
      {"POST", "/v1/completions", R"({"prompt":"x","n":1e9})", 400},
      {"POST", "/v1/completions", "[]", 400},
      {"POST", "/tokenize", "{}", 400},
      {"POST", "/detokenize", R"({"tokens":[1.5]})", 400},
      {"POST", "/apply-template/", R"({"messages":[]})", 400},
      {"GET", "/v1/models/nobody", "", 404},
      {"GET", "/v1/messages", "", 404},
      {"GET", "/api/tags", "", 404},
      {"GET", "/v1/chat/completions", "", 405},
      {"POST", "/health", "", 405},
      {"POST", "/metrics", "", 405},
      {"POST", "/version", "", 405},
      {"POST", "/api/cluster", "", 405},
      {"DELETE", "/api/requests/none", "", 404},
      {"POST", "/v1/embeddings", "{}", 501},
      {"POST", "/v1/audio/speech", "{}", 501}};
  for (const auto& wrong : wrongs) {
    const HttpReply reply = call(wrong.method, wrong.path, wrong.body);
    EXPECT_EQ(reply.status, wrong.status) << wrong.path << ": " << reply.body;
    const Json error = Json::parse(reply.body)["error"];
    EXPECT_TRUE(error["message"].is_string() && !error["message"].empty()) << wrong.path << ": " << reply.body;
    EXPECT_TRUE(error["type"].is_string()) << reply.body;
    EXPECT_EQ(FindHeader(reply.headers, "x-should-retry"), "false") << wrong.path;
  }
}

TEST(ForClients, TakesNoCompressedBodiesAndSaysSo) {
  ScriptedService service;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/apply-template"}) {
    const HttpReply reply = service.Post(path, "\x1f\x8b", {{"Content-Encoding", "gzip"}});
    EXPECT_EQ(reply.status, 415) << path;
    EXPECT_EQ(FindHeader(reply.headers, "accept-encoding"), "identity");
    EXPECT_THAT(reply.body, HasSubstr("found 'Content-Encoding: gzip'"));
  }
  EXPECT_EQ(service.Post("/v1/completions", R"({"prompt":"Say it."})", {{"Content-Encoding", "identity"}}).status, 200);
}

TEST(ForClients, ShowsABrowserWhatItIs) {
  ScriptedService service({.engine = {.ready = false}});
  const auto page = [&service] { return service.Get("/", {{"X-Forwarded-Proto", "https"}}); };
  EXPECT_THAT(page()->body, HasSubstr("<strong>loading</strong>: the model loads"));
  EXPECT_THAT(page()->body, HasSubstr("http-equiv=\"refresh\""));
  service.engine().BeReady();
  ASSERT_TRUE(ComesTrue([&] { return service.Get("/health")->status == 200; }));
  const HttpReply ready = *page();
  EXPECT_EQ(FindHeader(ready.headers, "content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(std::string(FindHeader(ready.headers, "content-security-policy")), StartsWith("default-src 'none'"));
  for (const char* part :
       {"<!doctype html>", "scripted", "<strong>ready</strong>", "1.2.3", "href=\"/metrics\"", "0 of 128 places"}) {
    EXPECT_THAT(ready.body, HasSubstr(part));
  }
  EXPECT_THAT(ready.body, HasSubstr(absl::StrCat("<code>https://127.0.0.1:", service.port(), "/v1</code>")));
  EXPECT_THAT(ready.body, ::testing::Not(HasSubstr("refresh")));
}

TEST(StartPage, ShowsNamesAsTheyAreAndNotAsMarkup) {
  StartPageFacts facts;
  facts.models = {"<script>alert('a&b')</script>", "\"two\""};
  facts.base_url = "http://<b>";
  const std::string body = StartPage(facts).body;
  EXPECT_THAT(body, HasSubstr("&lt;script&gt;alert(&#39;a&amp;b&#39;)&lt;/script&gt;, &quot;two&quot;"));
  EXPECT_THAT(body, ::testing::Not(HasSubstr("<b>")));
  EXPECT_THAT(body, ::testing::Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace stagecoach
