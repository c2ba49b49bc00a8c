// What calls may take of time and of the queue, what the metrics say of it, and what clients and browsers are told
// beside answers.

#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "coordinator/serve/service/open_calls.h"
#include "coordinator/serve/service/queue_places.h"
#include "coordinator/serve/service/service_routes.h"
#include "coordinator/serve/service/start_page.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

using Verdict = QueuePlaces::Verdict;

constexpr char kOnCompletions[] = "/v1/completions";

std::string Prompt(const std::string& words, const std::string& more = "") {
  return absl::StrCat(R"({"prompt":")", words, R"(","max_tokens":64)", more, "}");
}

int64_t TokensOf(const ScriptedService& service, const std::string& words) {
  return Json::parse(service.Post("/tokenize", absl::StrCat(R"({"prompt":")", words, R"("})")).body)["count"];
}

TEST(CallLimits, ExactlyWhatTheQueueHoldsIsTakenTheRestIsRefusedUnreadAndADrainLosesNothing) {
  constexpr int kPlaces = 5, kCalls = 50;
  ScriptedService service({.engine = {.max_running = 2}, .serving = {.calls = {.queue = {.requests = kPlaces}}}});
  service.engine().Hold(true);
  std::atomic<int> accepted{0}, refused{0};
  std::mutex mu;
  std::map<std::string, int> told;  // how many, by Retry-After
  Beside calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.Run([&] {
      const HttpReply reply = service.Post(kOnCompletions, Prompt("Say it.", R"(,"frobnicate":1)"));
      if (reply.status == 200 && Json::parse(reply.body)["choices"][0]["text"] == kScriptedText) ++accepted;
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
  const HttpReply reply = service.Post(kOnCompletions, Prompt("Say it.", R"(,"timeout_s":1)"));
  EXPECT_EQ(reply.status, 200);
  const Json choice = Json::parse(reply.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_NE(choice["text"], kScriptedText);
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 1 && service.Metric(ended) == 1; }));
  service.engine().Hold(true);
  EXPECT_EQ(service.Post(kOnCompletions, Prompt("Say it.")).status, 504);
  EXPECT_TRUE(ComesTrue([&] { return service.Metric(ended) == 2; }));
  EXPECT_EQ(service.Metric("stagecoach_requests_finished_total{api=\"completions\",reason=\"length\"}"), -1);
  EXPECT_EQ(service.Metric("stagecoach_requests_finished_total{api=\"completions\",reason=\"cancelled\"}"), -1);
}

TEST(CallLimits, EveryRefusalOfACallThatGeneratesIsCountedByItsCode) {
  ScriptedServiceOptions options;
  ApiKeys keys;
  ApiKey key = {.name = "ada", .key = "secret"};
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
  const HttpReply too_large = service.Post(kOnCompletions, std::string(1001, ' '), ada);
  EXPECT_EQ(too_large.status, 413);
  EXPECT_EQ(Json::parse(too_large.body)["error"]["code"], "too_large");
  EXPECT_EQ(Json::parse(too_large.body)["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(Json::parse(too_large.body)["error"].at("param").is_null());
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

TEST(ForClients, AnErrorSaysItsReasonAsATextAndWhetherToComeAgainOnEveryRoute) {
  ScriptedService service;
  const auto call = [&service](const char* method, const std::string& path, const std::string& body) {
    HttpCall call = {.method = method, .path = path, .body = body};
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
      {"GET", "/v1/nothing", "", 404},
      {"GET", "/v1/messages", "", 405},
      {"POST", "/v1/messages/batches", "{}", 501},
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
  EXPECT_THAT(ready.body, Not(HasSubstr("refresh")));
}

TEST(StartPage, ShowsNamesAsTheyAreAndNotAsMarkup) {
  StartPageFacts facts = {.models = {"<script>alert('a&b')</script>", "\"two\""}, .base_url = "http://<b>"};
  const std::string body = StartPage(facts).body;
  EXPECT_THAT(body, HasSubstr("&lt;script&gt;alert(&#39;a&amp;b&#39;)&lt;/script&gt;, &quot;two&quot;"));
  EXPECT_THAT(body, Not(HasSubstr("<b>")));
  EXPECT_THAT(body, Not(HasSubstr("<script>")));
}

TEST(LineLog, ALineForWhichThereIsNoRoomSpoilsNoneThatComesLater) {
  const testing::TempDir directory;
  const std::string path = directory.File("log");
  auto log = LineLog::Open(path, /*secret=*/false).value();
  const Json line = {{"number", 12345}};
  log->Write(line);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = testing::ReadFileOrDie(path).size() + 5;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 3; ++i) log->Write(line);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old_handler);
  log->Write(line);
  EXPECT_EQ(testing::ReadFileOrDie(path), "{\"number\":12345}\n{\"num\n{\"number\":12345}\n");
}

TEST(LineLog, OnADeviceThatTakesNothingIsNoReasonToEnd) {
  auto log = LineLog::Open("/dev/full", /*secret=*/false).value();
  for (int i = 0; i < 3; ++i) log->Write({{"number", i}});
}

TEST(QueuePlaces, TakesAsManyRequestsAndTokensAsThereIsRoomFor) {
  QueuePlaces places({.requests = 3, .tokens = 100});
  EXPECT_EQ(places.Take("a", 1, 60), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 41), Verdict::kFull);
  EXPECT_EQ(places.Take("a", 1, 40), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 2, 0), Verdict::kFull);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kFull);
  places.Leave("a", 1, 60);
  EXPECT_EQ(places.Take("a", 1, 60), Verdict::kTaken);
  EXPECT_EQ(places.requests(), 3);
  EXPECT_EQ(places.tokens(), 100);
}

TEST(QueuePlaces, OneOfWhomNobodyIsAheadMayHaveMoreTokensThanTheQueueHolds) {
  QueuePlaces places({.requests = 3, .tokens = 100});
  EXPECT_EQ(places.Take("a", 1, 5000), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 1), Verdict::kFull);
}

TEST(QueuePlaces, ATenantHasHalfOfThePlacesWhileOthersWaitAndAllWhenAlone) {
  QueuePlaces places({.requests = 8, .tokens = 1000});
  EXPECT_EQ(places.Take("a", 6, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTenantLimit);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kFull);
  places.Leave("a", 3, 0);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTenantLimit);
  places.Leave("b", 2, 0);
  EXPECT_EQ(places.Take("a", 1, 0), Verdict::kTaken);
}

TEST(QueuePlaces, WhoHasAPlaceIsNotAskedForItAgainWhenOthersCome) {
  QueuePlaces places({.requests = 8, .tokens = 1000});
  EXPECT_EQ(places.Take("a", 6, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("b", 1, 0), Verdict::kTaken);
  EXPECT_EQ(places.Take("a", 0, 10), Verdict::kTaken);
  EXPECT_EQ(places.tokens(), 10);
}

TEST(ServiceRoutes, FindsPathsAndWhatIsBehindThem) {
  ASSERT_NE(FindRoute("/v1/models").facts, nullptr);
  EXPECT_EQ(FindRoute("/v1/models").facts->route, Route::kModels);
  EXPECT_EQ(FindRoute("/v1/models/org/name").facts->route, Route::kModel);
  EXPECT_EQ(FindRoute("/v1/models/org/name").rest, "org/name");
  EXPECT_EQ(FindRoute("/").facts->route, Route::kRoot);
  EXPECT_EQ(FindRoute("/index.html").facts, nullptr);
  EXPECT_EQ(FindRoute("//").facts->route, Route::kRoot);  // "/" with a slash behind it
  EXPECT_EQ(FindRoute("/v1/audio/speech").facts->route, Route::kNotSupported);
  EXPECT_EQ(AllowedMethods(*FindRoute("/health").facts), "GET, HEAD");
  EXPECT_FALSE(Allows(*FindRoute("/v1/completions").facts, "GET"));
}

TEST(ServiceRoutes, AreTheSameWithASlashBehindThem) {
  for (const char* path : {"/health", "/v1/models", "/v1/models/org/name", "/v1/chat/completions", "/v1/completions",
                           "/tokenize", "/detokenize", "/apply-template", "/metrics", "/version", "/api/cluster",
                           "/api/requests/7", "/v1/embeddings"}) {
    const FoundRoute plain = FindRoute(path), slashed = FindRoute(absl::StrCat(path, "/"));
    EXPECT_NE(plain.facts, nullptr) << path;
    EXPECT_EQ(slashed.facts, plain.facts) << path;
    EXPECT_EQ(slashed.rest, plain.rest) << path;
    EXPECT_EQ(FindRoute(absl::StrCat(path, "//")).rest, plain.rest.empty() ? "" : plain.rest + "/") << path;
  }
}

constexpr int64_t kSecondUs = 1'000'000;

TEST(RetryTimes, FollowOneAnotherAtThePaceAtWhichRequestsEnd) {
  RetryTimes times(100, 20);
  int64_t now_us = 0;
  times.Started(now_us);
  for (int i = 0; i < 400; ++i) {  // ten a second, for longer than is remembered
    times.Started(now_us);
    now_us += kSecondUs / 10;
    times.Ended(now_us, /*served=*/true);
  }
  EXPECT_NEAR(times.Pace(now_us), 10, 0.5);
  std::vector<int> told;
  for (int i = 0; i < 80; ++i) told.push_back(times.SecondsToRoom(now_us));
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.front(), 1);
  EXPECT_NEAR(told.back(), 10, 1) << "80 at eight a second";
  // The line moves on while nobody is sent away.
  EXPECT_EQ(times.SecondsToRoom(now_us + 60 * kSecondUs), 1);
}

TEST(RetryTimes, CountNeitherIdleTimeNorRequestsWithoutAToken) {
  RetryTimes times(100, 20);
  EXPECT_EQ(times.Pace(0), 5) << "a queue in 20 s, before anything is known";
  times.Started(0);
  times.Ended(4 * kSecondUs, true);
  const double pace = times.Pace(4 * kSecondUs);
  EXPECT_NEAR(pace, (5 + 1) / 5.0, 1e-9);
  EXPECT_EQ(times.Pace(1000 * kSecondUs), pace);
  times.Started(1000 * kSecondUs);
  times.Ended(1000 * kSecondUs, false);
  EXPECT_EQ(times.Pace(1000 * kSecondUs), pace);
}

TEST(RetryTimes, KeepNobodyWaitingForLongerThanClientsDo) {
  RetryTimes times(10, 20);
  std::multiset<int> told;
  for (int i = 0; i < 1000; ++i) told.insert(times.SecondsToRoom(0));
  EXPECT_EQ(*told.begin(), 3) << "0.4 a second";
  EXPECT_EQ(*told.rbegin(), RetryTimes::kMostSeconds);
  for (int seconds = 31; seconds <= 60; ++seconds) EXPECT_LE(told.count(seconds), 1000u / 30 + 2) << seconds;
  EXPECT_EQ(times.SecondsToRoom(60 * kSecondUs), 3) << "what was promised is over";
  RetryTimes slow(1000, 20);
  EXPECT_EQ(slow.SecondsToRoom(0, /*most_pace=*/0.25), 5) << "prompts are computed no faster";
}

TEST(RetryTimes, WhoHasHisShareLengthensNoLineButHisOwn) {
  RetryTimes times(10, 20);
  for (int i = 0; i < 100; ++i) times.SecondsToRoom(0, /*most_pace=*/10, "greedy");
  EXPECT_GT(times.SecondsToRoom(0, /*most_pace=*/10, "greedy"), 30);
  EXPECT_EQ(times.SecondsToRoom(0), 3);
  EXPECT_EQ(times.SecondsToRoom(0, /*most_pace=*/10, "another"), 3);
}

// A server with a queue of 128 places, and clients that all come at once and try three times, as OpenAI's do: they obey
// Retry-After up to a minute.
struct Flood {
  int seats = 8;          // requests that run at once
  double answer_s = 0.4;  // of one, on average
  int before = 0;         // requests before, one after the other
  int clients = 600;
  int tries = 3;
};

struct FloodResult {
  int failed = 0;
  double seconds = 0;  // until the last answer
};

FloodResult Play(const Flood& flood, const std::function<int(RetryTimes*, int64_t)>& told) {
  constexpr double kPrefill = 0.02;
  enum class Kind { kArrives, kFirstToken, kEnds };
  struct Event {
    double at;
    int order;
    Kind kind;
    int attempt;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  QueuePlaces places({});
  RetryTimes times(128, 20);
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  int order = 0;
  const auto add = [&](double at, Kind kind, int attempt) { events.push({at, ++order, kind, attempt}); };
  for (int i = 0; i < flood.before; ++i) add(i * (flood.answer_s + kPrefill) * 1.6, Kind::kArrives, 0);
  const double start = flood.before * (flood.answer_s + kPrefill) * 1.6 + 1;
  for (int i = 0; i < flood.clients; ++i) add(start + 0.2 * unit(random), Kind::kArrives, 0);
  FloodResult result;
  std::deque<int> waiting;
  int running = 0;
  const auto admit = [&](double now) {
    while (!waiting.empty() && running < flood.seats) {
      ++running;
      add(now + kPrefill, Kind::kFirstToken, waiting.front());
      waiting.pop_front();
    }
  };
  for (; !events.empty(); events.pop()) {
    const Event event = events.top();
    const auto now_us = static_cast<int64_t>(event.at * kSecondUs);
    if (event.kind == Kind::kFirstToken) {
      places.Leave("a", 1, 0);
      add(event.at + flood.answer_s * (0.5 + unit(random)), Kind::kEnds, event.attempt);
    } else if (event.kind == Kind::kEnds) {
      --running;
      times.Ended(now_us, true);
      result.seconds = event.at - start;
      admit(event.at);
    } else if (places.Take("a", 1, 0) == QueuePlaces::Verdict::kTaken) {
      times.Started(now_us);
      waiting.push_back(event.attempt);
      admit(event.at);
    } else if (const int seconds = told(&times, now_us); event.attempt + 1 == flood.tries) {
      ++result.failed;
    } else {
      add(event.at + seconds + 0.01 * unit(random), Kind::kArrives, event.attempt + 1);
    }
  }
  return result;
}

int InLine(RetryTimes* times, int64_t now_us) { return times->SecondsToRoom(now_us); }
int TheSameSecond(RetryTimes*, int64_t) { return 1; }

TEST(RetryTimes, LetEveryOneOfAFloodFindRoomWithinItsTries) {
  for (const double answer_s : {0.02, 0.1, 0.4, 1.0}) {
    for (const int before : {0, 1, 20}) {
      const Flood flood = {.answer_s = answer_s, .before = before};
      EXPECT_EQ(Play(flood, InLine).failed, 0) << answer_s << " s, " << before << " before";
      EXPECT_GT(Play(flood, TheSameSecond).failed, 100) << "what it is about";
    }
  }
  EXPECT_EQ(Play({.seats = 32, .answer_s = 2}, InLine).failed, 0);
  EXPECT_EQ(Play({.answer_s = 0.1, .clients = 2000}, InLine).failed, 0);
}

TEST(RetryTimes, CostAFloodNoMoreThanAboutAMinuteOfWaiting) {
  for (const double answer_s : {0.02, 0.1, 0.4}) {
    EXPECT_LT(Play({.answer_s = answer_s}, InLine).seconds, 65) << answer_s;
  }
}

}  // namespace
}  // namespace stagecoach
