// Messages over HTTP: errors in its form on every path, whoever says them, and streams that are kept alive by events.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr char kMessagesPath[] = "/v1/messages", kCountPath[] = "/v1/messages/count_tokens";

std::string Asked(const std::string& more = "") {
  return absl::StrCat(R"({"max_tokens":64,"messages":[{"role":"user","content":"Say it."}])", more, "}");
}

void ExpectMessagesError(const HttpReply& reply, int status, const std::string& type, const std::string& what = "") {
  EXPECT_EQ(reply.status, status) << reply.body;
  const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << reply.body;
  EXPECT_EQ(json["type"], "error") << reply.body;
  ASSERT_TRUE(json["error"].is_object()) << reply.body;
  EXPECT_EQ(json["error"]["type"], type);
  EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(what));
  EXPECT_EQ(json["request_id"], std::string(FindHeader(reply.headers, "request-id")));
}

TEST(MessagesService, AnswersWholeAndAsAStreamOfNamedEvents) {
  ScriptedService service;
  const HttpReply whole = service.Post("/v1/messages?beta=true", Asked(R"(,"frobnicate":1)"),
                                       {{"anthropic-version", "2023-06-01"}, {"Accept", "application/json"}});
  ASSERT_EQ(whole.status, 200) << whole.body;
  const Json body = Json::parse(whole.body);
  EXPECT_EQ(body["content"][0]["text"], kScriptedText);
  EXPECT_EQ(body["stop_reason"], "end_turn");
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("msg_"));
  EXPECT_EQ(FindHeader(whole.headers, "x-stagecoach-ignored"), "frobnicate");
  EXPECT_FALSE(FindHeader(whole.headers, "request-id").empty());

  const HttpReply counted = service.Post(kCountPath, Asked());
  EXPECT_EQ(Json::parse(counted.body)["input_tokens"], body["usage"]["input_tokens"]);

  const Stream stream = service.ReadStream(kMessagesPath, Asked(R"(,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  std::string text;
  std::vector<std::string> types;
  for (const std::string& data : stream.data) {
    const Json event = Json::parse(data);
    types.push_back(event["type"]);
    if (types.back() == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, kScriptedText);
  ASSERT_GT(types.size(), 5u);
  EXPECT_EQ(types.front(), "message_start");
  EXPECT_EQ(types.back(), "message_stop");
}

TEST(MessagesService, SaysErrorsInItsFormOnEveryPath) {
  ScriptedService service;
  for (const char* path : {kMessagesPath, kCountPath}) {
    ExpectMessagesError(service.Post(path, "{"), 400, "invalid_request_error", "end of input");
    ExpectMessagesError(service.Post(path, "{}"), 400, "invalid_request_error", "is missing");
    ExpectMessagesError(service.Post(path, Asked(), {{"Content-Type", "text/plain"}}), 415, "invalid_request_error",
                        "found 'text/plain'");
    ExpectMessagesError(*service.Get(path), 405, "invalid_request_error", "takes POST");
    ExpectMessagesError(service.Post(path, std::string((8 << 20) + 1, 'x')), 413, "invalid_request_error");
  }
  ExpectMessagesError(service.Post("/v1/messages/batches", "{}"), 501, "invalid_request_error", "is not supported");
  EXPECT_TRUE(Json::parse(service.Post("/v1/completions", "{}").body)["error"].contains("code"))
      << "others have theirs";
}

TEST(MessagesService, SaysErrorsInItsFormBeforeThereIsACall) {
  ScriptedServiceOptions options = {.engine = {.ready = false}};
  ApiKeys keys;
  ASSERT_TRUE(keys.Add({.name = "ann", .key = "secret"}).ok());
  options.http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  ScriptedService service(std::move(options));
  const HttpHeaders key = {{"x-api-key", "secret"}};
  for (const char* path : {kMessagesPath, kCountPath}) {
    ExpectMessagesError(service.Post(path, Asked()), 401, "authentication_error");
  }
  const HttpReply loading = service.Post(kMessagesPath, Asked(), key);
  ExpectMessagesError(loading, 503, "overloaded_error", "the model loads");
  EXPECT_FALSE(FindHeader(loading.headers, "retry-after").empty());
  EXPECT_EQ(service.Post(kCountPath, Asked(), key).status, 200) << "that needs no cluster";
}

TEST(MessagesService, SaysInItsFormThatTheQueueIsFull) {
  ScriptedService service({.engine = {.max_running = 1}, .serving = {.calls = {.queue = {.requests = 1}}}});
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(service.Post(kMessagesPath, Asked()).status, 200); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 1; }));
  const HttpReply refused = service.Post(kMessagesPath, Asked());
  ExpectMessagesError(refused, 429, "rate_limit_error");
  EXPECT_FALSE(FindHeader(refused.headers, "retry-after").empty());
  service.engine().Hold(false);
}

TEST(MessagesService, KeepsAStreamAliveWithEvents) {
  ScriptedServiceOptions options;
  options.http.sse_ping_interval = absl::Milliseconds(20);
  ScriptedService service(std::move(options));
  service.engine().Hold(true);
  const Stream stream = service.ReadStream(kMessagesPath, Asked(R"(,"stream":true)"),
                                           [](const Stream& so_far) { return so_far.data.size() >= 2; });
  ASSERT_GE(stream.data.size(), 2u);
  EXPECT_EQ(stream.data[1], R"({"type":"ping"})");
}

TEST(MessagesService, EndsAStreamThatCannotGoOnWithAnErrorThatIsAnEvent) {
  ScriptedService service({.serving = {.calls = {.queue_timeout = absl::Milliseconds(50)}}});
  service.engine().Hold(true);
  const Stream stream =
      service.ReadStream(kMessagesPath, Asked(R"(,"stream":true)"), nullptr, {{"x-request-id", "r7"}});
  service.engine().Hold(false);
  ASSERT_FALSE(stream.data.empty());
  const Json last = Json::parse(stream.data.back());
  EXPECT_EQ(last["type"], "error");
  EXPECT_EQ(last["error"]["type"], "timeout_error");
  EXPECT_EQ(last["request_id"], "r7");
}

}  // namespace
}  // namespace stagecoach
