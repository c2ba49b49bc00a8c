// What calls may take of time and of the queue, and what the metrics say of it.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr char kOnCompletions[] = "/v1/completions";

std::string Prompt(const std::string& words, const std::string& more = "") {
  return absl::StrCat(R"({"prompt":")", words, R"(","max_tokens":64)", more, "}");
}

int64_t TokensOf(const ScriptedService& service, const std::string& words) {
  return Json::parse(service.Post("/tokenize", absl::StrCat(R"({"prompt":")", words, R"("})")).body)["count"];
}

TEST(CallLimits, ExactlyWhatTheQueueHoldsIsTakenTheRestIsRefusedUnreadAndADrainLosesNothing) {
  constexpr int kPlaces = 5, kCalls = 50;
  ScriptedService service({.serving = {.calls = {.queue = {.requests = kPlaces}}}});
  service.engine().Hold(true);
  std::atomic<int> accepted{0}, refused{0};
  std::mutex mu;
  std::map<std::string, int> told;  // how many, by Retry-After
  Beside calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.Run([&] {
      const HttpReply reply = service.Post(kOnCompletions, Prompt("Say it.", R"(,"frobnicate":1)"));
      if (reply.status == 200) ++accepted;
      if (reply.status != 429) return;
      ++refused;
      EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "queue_full");
      const std::lock_guard<std::mutex> lock(mu);
      ++told[std::string(FindHeader(reply.headers, "retry-after"))];
    });
  }
  EXPECT_TRUE(ComesTrue([&] { return refused == kCalls - kPlaces; })) << refused;
  {
    const std::lock_guard<std::mutex> lock(mu);
    EXPECT_FALSE(told.contains(""));
    EXPECT_GE(told.size(), 30u) << "they come again one after the other";
    for (const auto& [seconds, clients] : told) EXPECT_LE(clients, 3) << seconds;
  }
  EXPECT_TRUE(ComesTrue([&] { return service.engine().submitted() == kPlaces; }));
  EXPECT_EQ(service.Metric("stagecoach_requests_refused_total{code=\"queue_full\"}"), kCalls - kPlaces);
  // Each that was read has a field that was ignored.
  EXPECT_EQ(service.Metric("stagecoach_ignored_items_total{kind=\"parameter\"}"), kPlaces);

  service.serving().Drain();
  EXPECT_TRUE(ComesTrue([&] { return service.Post(kOnCompletions, Prompt("Say it.")).status == 503; }));
  EXPECT_EQ(accepted, 0);
  service.engine().Hold(false);
  calls.Join();
  EXPECT_EQ(accepted, kPlaces);
  EXPECT_EQ(service.Ended(), absl::OkStatus());
}

TEST(CallLimits, APlaceIsFreeAgainWhenItsCallIsAnswered) {
  ScriptedService service({.serving = {.calls = {.queue = {.requests = 1}}}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(service.Post(kOnCompletions, Prompt("Say it.")).status, 200);
}

TEST(CallLimits, TheRequestTimeoutIsNoneOfTheQueue) {
  ScriptedService service({.serving = {.calls = {.request_timeout = absl::Milliseconds(200)}}, .each_us = 50000});
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] {
    const HttpReply reply = service.Post(kOnCompletions, Prompt("Say it."));
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json choice = Json::parse(reply.body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_TRUE(choice["text"].get<std::string>().starts_with(" one two")) << choice["text"];
    EXPECT_NE(choice["text"], kScriptedText);
  });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 1; }));
  absl::SleepFor(absl::Milliseconds(400));  // longer than it may take when it runs
  service.engine().Hold(false);
  calls.Join();
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 1; }));
  EXPECT_EQ(service.Metric("stagecoach_requests_refused_total{code=\"queue_timeout\"}"), -1);
}

TEST(CallLimits, WhatADeadlineEndsIsCountedAsThat) {
  ScriptedService service({.serving = {.calls = {.queue_timeout = absl::Seconds(2)}}, .each_us = 300000});
  const std::string ended = "stagecoach_requests_finished_total{api=\"completions\",reason=\"deadline\"}";
  EXPECT_EQ(service.Post(kOnCompletions, Prompt("Say it.", R"(,"timeout_s":1)")).status, 200);
  EXPECT_TRUE(ComesTrue([&] { return service.Metric(ended) == 1; }));
  service.engine().Hold(true);
  EXPECT_EQ(service.Post(kOnCompletions, Prompt("Say it.")).status, 504);
  EXPECT_TRUE(ComesTrue([&] { return service.Metric(ended) == 2; }));
  EXPECT_EQ(service.Metric("stagecoach_requests_finished_total{api=\"completions\",reason=\"length\"}"), -1);
  EXPECT_EQ(service.Metric("stagecoach_requests_finished_total{api=\"completions\",reason=\"cancelled\"}"), -1);
}

TEST(CallLimits, EveryRefusalOfACallThatGeneratesIsCountedByItsCode) {
  ScriptedServiceOptions options;
  ApiKeys keys;
  ApiKey key;
  key.name = "ada";
  key.key = "secret";
  ASSERT_TRUE(keys.Add(key).ok());
  options.http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  options.http.limits.body_bytes = 1000;
  ScriptedService service(options);
  const HttpHeaders ada = {{"Authorization", "Bearer secret"}};
  HttpHeaders as_text = ada;
  as_text.emplace_back("Content-Type", "text/plain");
  EXPECT_EQ(service.Post(kOnCompletions, Prompt("x")).status, 401);
  EXPECT_EQ(service.Post(kOnCompletions, "{", ada).status, 400);
  EXPECT_EQ(service.Post(kOnCompletions, "[", ada).status, 400);
  EXPECT_EQ(service.Post(kOnCompletions, R"({"prompt":7.5})", ada).status, 400);
  EXPECT_EQ(service.Post(kOnCompletions, Prompt("x"), as_text).status, 415);
  EXPECT_EQ(service.Post(kOnCompletions, std::string(1001, ' '), ada).status, 413);
  // None of these would have generated anything.
  EXPECT_EQ(service.Post("/tokenize", "{", ada).status, 400);
  EXPECT_EQ(service.Post("/v2/completions", "{}", ada).status, 404);
  EXPECT_EQ(service.Get("/v1/models")->status, 401);
  const auto refused = [&](const char* code) {
    return service.Metric(absl::StrCat("stagecoach_requests_refused_total{code=\"", code, "\"}"));
  };
  EXPECT_EQ(refused("invalid_api_key"), 1);
  EXPECT_EQ(refused("invalid_json"), 2);
  EXPECT_EQ(refused("invalid_value"), 1);
  EXPECT_EQ(refused("unsupported_media_type"), 1);
  EXPECT_EQ(refused("too_large"), 1);
  EXPECT_EQ(refused("not_found"), -1);
}

TEST(CallLimits, ThePromptOfSeveralChoicesWaitsAndCountsOnce) {
  ScriptedServiceOptions options;
  constexpr int64_t kTokens = 20;
  options.serving.calls.queue.tokens = kTokens;
  ScriptedService service(options);
  const std::string words = "one two three four five six seven eight nine ten";
  const int64_t tokens = TokensOf(service, words);
  ASSERT_LE(tokens + TokensOf(service, "Say it."), kTokens);
  ASSERT_GT(4 * tokens, kTokens);
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(service.Post(kOnCompletions, Prompt(words, R"(,"n":4)")).status, 200); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 4; }));
  // Four times as many would leave no room for it.
  calls.Run([&] { EXPECT_EQ(service.Post(kOnCompletions, Prompt("Say it.")).status, 200); });
  EXPECT_TRUE(ComesTrue([&] { return service.engine().submitted() == 5; }));
  service.engine().Hold(false);
  calls.Join();
  const auto all = static_cast<double>(tokens + TokensOf(service, "Say it."));
  EXPECT_EQ(service.Metric("stagecoach_prompt_tokens_total"), all);
  EXPECT_EQ(service.Metric("stagecoach_tenant_tokens_total{tenant=\"anonymous\",kind=\"prompt\"}"), all);
  EXPECT_EQ(service.Metric("stagecoach_prefix_cache_queries_total"), all);
  EXPECT_EQ(service.Metric("stagecoach_request_prompt_tokens_count"), 2);
}

TEST(CallLimits, ConnectionsThatWaitForTheirClientsEndAreCountedToo) {
  ScriptedService service;
  EXPECT_EQ(service.Metric("stagecoach_http_connections{state=\"closing\"}"), 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(service.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_GT(send(client, "7\r\n\r\n", 5, 0), 0);  // no HTTP: it is told so, and the rest is up to it
  EXPECT_TRUE(ComesTrue([&] { return service.Metric("stagecoach_http_connections{state=\"closing\"}") == 1; }));
  close(client);
}

}  // namespace
}  // namespace stagecoach
