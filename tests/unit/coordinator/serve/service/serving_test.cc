// Serving over HTTP and a session before an engine that plays a script.

#include "coordinator/serve/service/serving.h"

#include <atomic>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/json/json.h"
#include "common/json/json_value.h"
#include "common/wire/handshake.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kCompletions[] = "/v1/completions";

std::string Completion(const std::string& more = "") {
  return absl::StrCat(R"({"prompt":"Say it.","max_tokens":64)", more, "}");
}
std::string Chat(const std::string& more = "") {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"Say it."}])", more, "}");
}

std::string CodeOf(const std::string& body) { return Json::parse(body)["error"]["code"]; }

void ExpectError(const HttpReply& reply, int status, const std::string& code) {
  EXPECT_EQ(reply.status, status) << reply.body;
  EXPECT_EQ(CodeOf(reply.body), code);
}

std::vector<Json> ChoicesOf(const Stream& stream) {
  std::vector<Json> choices;
  for (const std::string& data : stream.data) {
    if (data == "[DONE]") continue;
    for (const Json& choice : Json::parse(data).value("choices", Json::array())) choices.push_back(choice);
  }
  return choices;
}

// The text of all deltas of one choice.
std::string TextOf(const Stream& stream, int index = 0) {
  std::string text;
  for (const Json& choice : ChoicesOf(stream)) {
    if (choice["index"] != index) continue;
    text += choice.contains("delta") ? choice["delta"].value("content", "") : choice.value("text", "");
  }
  return text;
}

TEST(Serving, AnswersWholeAndAsAStreamWithTheSameText) {
  ScriptedService service;
  const HttpReply whole = service.Post(kCompletions, Completion(R"(,"frobnicate":1)"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(FindHeader(whole.headers, "x-stagecoach-ignored"), "frobnicate");
  EXPECT_EQ(Json::parse(whole.body)["choices"][0]["text"], kScriptedText);
  EXPECT_EQ(Json::parse(whole.body)["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(FindHeader(whole.headers, "x-request-id").empty());
  const Stream stream = service.ReadStream(kCompletions, Completion(R"(,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(TextOf(stream), kScriptedText);
  ASSERT_FALSE(stream.data.empty());
  EXPECT_EQ(stream.data.back(), "[DONE]");
  const Stream chat = service.ReadStream(kChat, Chat(R"(,"stream":true)"));
  EXPECT_EQ(TextOf(chat), kScriptedText);
  EXPECT_EQ(chat.data.back(), "[DONE]");
}

TEST(Serving, APredictionReachesTheEngineAndUsageSaysWhatBecameOfIt) {
  ScriptedServiceOptions options;
  options.engine.script = [](const pb::SubmitRequest& submit) {  // says what was predicted
    testing::ScriptedAnswer answer;
    answer.tokens.assign(submit.prediction().begin(), submit.prediction().end());
    answer.cost.set_predicted_right(submit.prediction_size());
    answer.cost.set_predicted_wrong(2);
    return answer;
  };
  ScriptedService service(std::move(options));
  const std::string asked = R"(,"n":2,"prediction":{"type":"content","content":" one two three"})";
  const HttpReply whole = service.Post(kChat, Chat(asked));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(FindHeader(whole.headers, "x-stagecoach-ignored"), "");
  const Json body = Json::parse(whole.body);
  for (const Json& choice : body["choices"]) EXPECT_EQ(choice["message"]["content"], " one two three");
  const size_t tokens = service.model().tokenizer->Encode(" one two three", false, false).size();
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 2 * tokens);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["rejected_prediction_tokens"], 4);
  const Stream stream =
      service.ReadStream(kChat, Chat(asked + R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_GE(stream.data.size(), 2u) << stream.body;
  EXPECT_EQ(Json::parse(*(stream.data.end() - 2))["usage"], body["usage"]);
  ExpectError(service.Post(kChat, Chat(R"(,"prediction":{"type":"suffix","content":"x"})")), 400, "invalid_value");
}

TEST(Serving, SkipsToolsThatOnlyOthersHaveAndCountsThem) {
  ScriptedService service;
  const HttpReply reply = service.Post(kChat, Chat(R"(,"tools":[{"type":"web_search"},{"type":"mcp","x":1}])"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(FindHeader(reply.headers, "x-stagecoach-ignored"), "tools.web_search, tools.mcp");
  EXPECT_EQ(service.Metric("stagecoach_ignored_items_total{kind=\"tools\"}"), 2);
}

TEST(Serving, CountsTheGrammarsThatAreCompiledAndNotThoseThatAreFound) {
  ScriptedService service;
  for (const char* pattern : {"a+", "b+", "a+"}) {
    const std::string form = absl::StrCat(R"(,"structured_outputs":{"regex":")", pattern, "\"}");
    EXPECT_EQ(service.Post(kCompletions, Completion(form)).status, 200);
  }
  EXPECT_EQ(service.Metric("stagecoach_grammar_compile_seconds_count"), 2);
}

TEST(Serving, AnAnswerNamesModelInstructionSetsAndVersionItDependsOn) {
  ScriptedService service;
  const std::string hash = service.model().hash;
  EXPECT_EQ(hash.size(), 16u);
  const Json body = Json::parse(service.Post(kCompletions, Completion()).body);
  EXPECT_EQ(body["system_fingerprint"], absl::StrCat("sc-", hash, "-avx2-", kProgramVersion));
  pb::JobReady job;
  for (const auto set : {pb::INSTRUCTION_SET_AVX512, pb::INSTRUCTION_SET_AVX2, pb::INSTRUCTION_SET_AVX512}) {
    job.add_stages()->set_isa(set);
  }
  EXPECT_EQ(SystemFingerprint(service.model(), job), absl::StrCat("sc-", hash, "-avx2+avx512-", kProgramVersion));
}

TEST(Serving, ListensWhileTheModelLoadsAndGeneratesWhenItIsReady) {
  ScriptedService service({.engine = {.ready = false}});
  const HttpReply refused = service.Post(kCompletions, Completion());
  ExpectError(refused, 503, "loading");
  EXPECT_FALSE(FindHeader(refused.headers, "retry-after").empty());
  const HttpReply health = *service.Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["status"], "loading");
  EXPECT_EQ(service.Post("/tokenize", R"({"prompt":"one two"})").status, 200);
  EXPECT_EQ(service.Get("/v1/models")->status, 200);
  EXPECT_EQ(service.Get("/metrics")->status, 200);
  service.engine().BeReady();
  EXPECT_TRUE(ComesTrue([&] { return service.Get("/health")->status == 200; }));
  EXPECT_EQ(Json::parse(service.Get("/v1/health")->body)["status"], "ok");
  EXPECT_EQ(service.Post(kCompletions, Completion()).status, 200);
}

TEST(Serving, SendsTheClientsOfOtherServersToItsOwnRoutes) {
  ScriptedService service;
  for (const char* path :
       {"/api/chat", "/api/generate", "/completion", "/infill", "/chat/completions", "/v1/v1/models"}) {
    const HttpReply reply = service.Post(path, R"({"model":"m"})");
    ExpectError(reply, 404, "not_found");
    EXPECT_THAT(std::string(Json::parse(reply.body)["error"]["message"]), HasSubstr("; use ")) << path;
    // What shows a client that expects another form the whole body, and lets the others read it.
    EXPECT_EQ(FindHeader(reply.headers, "content-type"), "application/problem+json");
    EXPECT_EQ(FindHeader(reply.headers, "x-should-retry"), "false");
  }
  const HttpReply tags = *service.Get("/api/tags");
  EXPECT_EQ(Json::parse(tags.body)["error"]["message"],
            "there is nothing at GET /api/tags, which is of Ollama's API; use GET /v1/models");
}

TEST(Serving, SaysOfWhatItDoesNotDoWhyAndThatRepeatingIsOfNoUse) {
  ScriptedService service;
  for (const auto& [path, why] : {std::pair{"/v1/embeddings", "makes no embeddings"},
                                  {"/v1/rerank", "ranks none"},
                                  {"/v1/images/generations", "reads and writes text"},
                                  {"/v1/audio/transcriptions", "reads and writes text"},
                                  {"/v1/batches", "send each request by itself"}}) {
    const HttpReply reply = service.Post(path, "{}");
    ExpectError(reply, 501, "not_supported");
    EXPECT_THAT(reply.body, HasSubstr(why));
    EXPECT_EQ(FindHeader(reply.headers, "x-should-retry"), "false");
  }
}

TEST(Serving, SaysWhatIsWrongWithARequestThatNoRouteTakes) {
  ScriptedService service;
  EXPECT_EQ(CodeOf(service.Get("/v2/models")->body), "not_found");
  EXPECT_EQ(service.Get("/v2/models")->status, 404);
  const HttpReply wrong = *service.Get(kCompletions);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(FindHeader(wrong.headers, "allow"), "POST");
  const HttpReply form = service.Post(kCompletions, Completion(), {{"Content-Type", "text/plain"}});
  ExpectError(form, 415, "unsupported_media_type");
  EXPECT_THAT(form.body, HasSubstr("found 'text/plain'"));
  EXPECT_EQ(CodeOf(service.Post(kCompletions, "{").body), "invalid_json");
  EXPECT_EQ(service.Post(kCompletions, R"({"prompt":"x","max_tokens":-1})").status, 400);
  HttpCall head = {.method = "HEAD", .path = "/api/hello"};
  EXPECT_EQ(service.Call(head).status, 200);
  EXPECT_EQ(service.Post("/api/event_logging/batch", "[1]").status, 204);
  EXPECT_EQ(Json::parse(service.Get("/version")->body)["version"], "1.2.3");
  const Json cluster = Json::parse(service.Get("/api/cluster")->body);
  EXPECT_EQ(cluster["state"], "ready");
  EXPECT_EQ(cluster["model"]["name"], "scripted");
}

// What a client gets whose request the HTTP server ends itself.
TEST(Serving, ErrorsOfHttpHaveTheFormOfTheirApi) {
  ScriptedService service;
  const auto body = [&](const char* path, const HttpError& error) {
    HttpRequest request;
    request.path = path;
    request.id = "r1";
    return Json::parse(service.serving().OnRefusal(request, error));
  };
  const std::tuple<HttpError, const char*, const char*> cases[] = {
      {{400, "malformed_request", "a \"head\""}, "invalid_request_error", "invalid_request_error"},
      {{403, "host_not_allowed", "b"}, "permission_error", "permission_error"},
      {{408, "body_timeout", "c"}, "timeout_error", "timeout_error"},
      {{431, "header_too_large", "d"}, "invalid_request_error", "invalid_request_error"},
      {{500, "internal", "e"}, "server_error", "api_error"},
      {{503, "too_many_connections", "f"}, "unavailable_error", "overloaded_error"}};
  for (const auto& [error, type, type_of_messages] : cases) {
    const Json expected = {
        {"error", {{"message", error.message}, {"type", type}, {"param", nullptr}, {"code", error.code}}}};
    EXPECT_EQ(body("/v1/chat/completions", error), expected);
    EXPECT_EQ(body("", error), expected) << "a head that could not be read";
    const Json of_messages = body("/v1/messages", error);
    EXPECT_EQ(of_messages["type"], "error");
    EXPECT_EQ(of_messages["error"]["type"], type_of_messages);
    EXPECT_EQ(of_messages["error"]["message"], error.message);
    EXPECT_EQ(of_messages["request_id"], "r1");
  }
}

TEST(Serving, TokensAndTextGoBothWays) {
  ScriptedService service;
  const Json tokens = Json::parse(service.Post("/tokenize", R"({"prompt":"one two three"})").body);
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  Json ask;
  ask["tokens"] = tokens["tokens"];
  EXPECT_THAT(Json::parse(service.Post("/detokenize", ask.dump()).body)["content"], HasSubstr("one two three"));
  EXPECT_THAT(Json::parse(service.Post("/apply-template", Chat()).body)["prompt"],
              HasSubstr("<|im_start|>user\nSay it."));
}

// As lm-evaluation-harness's client does: it asks for the texts of special tokens, and for their ids by these.
TEST(Serving, IsARemoteTokenizer) {
  ScriptedService service;
  const Json info = Json::parse(service.Get("/tokenizer_info")->body);
  EXPECT_EQ(info["eos_token"], "<|im_end|>");
  EXPECT_THAT(info["chat_template"].get<std::string>(), HasSubstr("<|im_start|>"));
  Json ask = {{"prompt", info["eos_token"]}, {"add_special_tokens", false}};
  const Json ids = Json::parse(service.Post("/tokenize", ask.dump()).body)["tokens"];
  EXPECT_EQ(ids, Json({4095}));
  EXPECT_EQ(Json::parse(service.Post("/detokenize", Json({{"tokens", ids}}).dump()).body)["prompt"], info["eos_token"]);
}

TEST(Serving, HasSoManyPlacesForCallsForTokens) {
  ScriptedServiceOptions options;
  options.serving.texts.requests = 1;
  ScriptedService service(options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(service.Post("/tokenize", R"({"prompt":"one"})").status, 200);
  options.serving.texts.requests = 0;
  ScriptedService full(options);
  std::set<std::string> told;
  for (const char* path : {"/tokenize", "/detokenize", "/apply-template"}) {
    const HttpReply reply = full.Post(path, "{}");
    ExpectError(reply, 429, "queue_full");
    EXPECT_THAT(reply.body, HasSubstr("0 requests for tokens and texts with 0 bytes are answered, of at most 0 and"));
    told.insert(std::string(FindHeader(reply.headers, "retry-after")));
  }
  EXPECT_EQ(told, (std::set<std::string>{"2", "3", "4"})) << "one after the other";
  EXPECT_EQ(full.Post(kCompletions, Completion()).status, 200);
}

TEST(Serving, AStreamsHeadAndFirstEventLeaveWhenItIsAcceptedNotWithTheFirstToken) {
  ScriptedService service;
  service.engine().Hold(true);
  const Stream stream = service.ReadStream(kChat, Chat(R"(,"stream":true)"), [&](const Stream& so_far) {
    if (so_far.data.size() == 1) {
      EXPECT_EQ(Json::parse(so_far.data[0])["choices"][0]["delta"]["role"], "assistant");
      service.engine().Hold(false);
    }
    return false;
  });
  EXPECT_EQ(TextOf(stream), kScriptedText);
}

TEST(Serving, ACallForMorePromptTokensThanMayWaitIsRefusedWhileOthersWait) {
  ScriptedService service({.serving = {.calls = {.queue = {.tokens = 20}}}});
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(service.Post(kCompletions, Completion()).status, 200); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 1; }));
  std::string words;
  for (int i = 0; i < 40; ++i) words += " word";
  const HttpReply reply = service.Post(kCompletions, absl::StrCat(R"({"prompt":")", words, R"("})"));
  EXPECT_EQ(reply.status, 429) << reply.body;
  service.engine().Hold(false);
  calls.Join();
  EXPECT_EQ(service.Post(kCompletions, absl::StrCat(R"({"prompt":")", words, R"("})")).status, 200);
}

std::shared_ptr<const ApiKeys> TwoKeys() {
  ApiKeys keys;
  for (const char* name : {"ada", "bob"}) {
    ApiKey key = {.name = name, .key = absl::StrCat("secret-of-", name)};
    EXPECT_TRUE(keys.Add(key).ok());
  }
  return std::make_shared<const ApiKeys>(std::move(keys));
}

HttpHeaders As(const std::string& name) { return {{"Authorization", absl::StrCat("Bearer secret-of-", name)}}; }

TEST(Serving, AsksForAKeyWhereItHasKeysAndNoTenantTakesAllPlaces) {
  ScriptedServiceOptions options;
  options.http.keys = TwoKeys();
  options.serving.calls.queue.requests = 4;
  ScriptedService service(options);
  ExpectError(service.Post(kCompletions, Completion()), 401, "invalid_api_key");
  EXPECT_EQ(service.Post(kCompletions, Completion(), As("eve")).status, 401);
  EXPECT_EQ(service.Get("/v1/models")->status, 401);
  EXPECT_EQ(service.Get("/health")->status, 200);
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(service.Post(kCompletions, Completion(), As("bob")).status, 200); });
  for (int i = 0; i < 2; ++i) {
    calls.Run([&] { EXPECT_EQ(service.Post(kCompletions, Completion(), As("ada")).status, 200); });
  }
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 3; }));
  ExpectError(service.Post(kCompletions, Completion(), As("ada")), 429, "tenant_limit");
  service.engine().Hold(false);
}

TEST(Serving, AClientThatGoesEndsItsRequestAtTheEngineAndLeavesItsPlace) {
  ScriptedServiceOptions options;
  options.each_us = 20000;
  ScriptedService service(options);
  service.ReadStream(kCompletions, Completion(R"(,"stream":true)"),
                     [](const Stream& stream) { return stream.data.size() >= 2; });
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 1; }));
  // One that waits for its first token, and for no stream.
  service.engine().Hold(true);
  HttpCall call = {.method = "POST", .path = kCompletions, .body = Completion()};
  service.Call(call, absl::Milliseconds(300));
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 2; }));
  EXPECT_EQ(service.engine().running() + service.engine().waiting(), 0);
  EXPECT_TRUE(ComesTrue([&] { return service.session().Status()->unfinished == 0; }));
}

// Of the one request that an engine was told of.
pb::SubmitRequest SubmittedWith(const std::string& fields, HttpHeaders headers) {
  ScriptedServiceOptions options;
  ApiKeys keys;
  EXPECT_TRUE(keys.Add({"ada", "secret-of-ada", PriorityClass::kDefault, 2.5}).ok());
  options.http.keys = std::make_shared<const ApiKeys>(std::move(keys));
  if (headers.empty()) options.http.keys = nullptr;
  pb::SubmitRequest submitted;
  options.engine.script = [&submitted](const pb::SubmitRequest& request) {
    submitted = request;
    return testing::ScriptedAnswer();
  };
  {
    ScriptedService service(options);
    EXPECT_EQ(service.Post(kCompletions, Completion(fields), headers).status, 200);
  }
  return submitted;
}

TEST(Serving, TheEngineIsToldWhoseARequestIsAndOfWhichClass) {
  const pb::SubmitRequest batch = SubmittedWith(R"(,"priority":2)", As("ada"));
  EXPECT_EQ(batch.tenant(), "ada");
  EXPECT_EQ(batch.weight(), 2.5);
  EXPECT_EQ(batch.priority_class(), 2);
  EXPECT_EQ(SubmittedWith("", As("ada")).priority_class(), 1);
  const pb::SubmitRequest nobody = SubmittedWith(R"(,"priority":0)", {});
  EXPECT_EQ(nobody.tenant(), "anonymous");
  EXPECT_EQ(nobody.weight(), 1);
  EXPECT_EQ(nobody.priority_class(), 0);
}

TEST(Serving, SeveralChoicesAreSeveralRequestsAndOneAnswer) {
  ScriptedService service;
  const HttpReply reply = service.Post(kChat, Chat(R"(,"n":3,"seed":5)"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choices = Json::parse(reply.body)["choices"];
  ASSERT_EQ(choices.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(choices[i]["index"], i);
    EXPECT_EQ(choices[i]["message"]["content"], kScriptedText);
  }
  EXPECT_EQ(service.engine().submitted(), 3);
  const Stream stream = service.ReadStream(kChat, Chat(R"(,"n":2,"stream":true)"));
  EXPECT_EQ(TextOf(stream, 0), kScriptedText);
  EXPECT_EQ(TextOf(stream, 1), kScriptedText);
}

TEST(Serving, AStopStringEndsTheAnswerAndTheEnginesRequest) {
  ScriptedService service({.each_us = 5000});
  const HttpReply reply = service.Post(kCompletions, Completion(R"(,"stop":" three")"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(Json::parse(reply.body)["choices"][0]["text"], " one two");
  EXPECT_EQ(Json::parse(reply.body)["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 1; }));
}

TEST(Serving, WhoGetsNoTokenInTimeIsToldSo) {
  ScriptedService service({.serving = {.calls = {.queue_timeout = absl::Milliseconds(100)}}});
  service.engine().Hold(true);
  const HttpReply reply = service.Post(kCompletions, Completion());
  ExpectError(reply, 504, "queue_timeout");
  EXPECT_EQ(FindHeader(reply.headers, "x-should-retry"), "false");
  const Stream stream = service.ReadStream(kChat, Chat(R"(,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  ASSERT_FALSE(stream.data.empty());
  EXPECT_EQ(CodeOf(stream.data.back()), "queue_timeout");
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 2; }));
}

TEST(Serving, DrainingAnswersWhatWasAcceptedAndTakesNothingNew) {
  ScriptedService service({.engine = {.max_running = 1}, .each_us = 20000});
  Beside calls;
  calls.Run([&] { EXPECT_EQ(service.Post(kCompletions, Completion()).status, 200); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 1; }));
  calls.Run([&] {  // it waits until the other is answered
    const Stream stream = service.ReadStream(kChat, Chat(R"(,"stream":true)"));
    EXPECT_EQ(TextOf(stream), kScriptedText);
    EXPECT_EQ(stream.data.back(), "[DONE]");
  });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 2; }));
  service.serving().Drain();
  EXPECT_TRUE(ComesTrue([&] { return service.Get("/health")->status == 503; }));
  ExpectError(service.Post(kCompletions, Completion()), 503, "draining");
  calls.Join();
  EXPECT_EQ(service.Ended(), absl::OkStatus());
}

TEST(Serving, WhatIsNotAnsweredWithinTheDrainTimeoutIsToldSo) {
  ScriptedService service({.serving = {.drain_timeout = absl::Milliseconds(100)}});
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(CodeOf(service.ReadStream(kChat, Chat(R"(,"stream":true)")).data.back()), "draining"); });
  calls.Run([&] { EXPECT_EQ(service.Post(kCompletions, Completion()).status, 503); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 2; }));
  service.serving().Drain();
  calls.Join();
  EXPECT_EQ(service.Ended(), absl::OkStatus());
  EXPECT_EQ(service.engine().cancelled(), 2);
}

TEST(Serving, TheDrainTimeoutIsKeptToWheneverItEnds) {
  ScriptedServiceOptions options;
  options.serving.drain_timeout = absl::Milliseconds(200);
  options.http.tick = absl::Seconds(600);
  ScriptedService service(options);
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] { EXPECT_EQ(CodeOf(service.Post(kCompletions, Completion()).body), "draining"); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 1; }));
  const absl::Time begin = absl::Now();
  service.serving().Drain();
  EXPECT_EQ(service.Ended(), absl::OkStatus());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(200));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "more than that is no noise";
}

// Many texts to cut into tokens, whose end nobody waits for.
TEST(Serving, WhatNeedsNoClusterHoldsTheEndOfAServerNotBack) {
  constexpr int kTexts = 20;
  ScriptedService service({.serving = {.drain_timeout = absl::Seconds(60)}});
  std::string body = R"({"prompt":")";
  const size_t long_enough = size_t{1} << (testing::kSanitized ? 17 : 20);
  while (body.size() < long_enough) body += "some words ";
  body += R"("})";
  std::atomic<int> answered{0};
  Beside calls;
  for (int i = 0; i < kTexts; ++i) {
    calls.Run([&] {
      service.Post("/tokenize", body);
      ++answered;
    });
  }
  ASSERT_TRUE(ComesTrue([&] { return answered > 0; }));
  service.serving().Drain();
  EXPECT_EQ(service.Ended(), absl::OkStatus());
  EXPECT_LT(answered, kTexts);
  service.Stop();
}

TEST(Serving, WhenTheClusterIsLostForGoodEveryAnswerEndsWithThat) {
  ScriptedService service;
  service.engine().Hold(true);
  Beside calls;
  calls.Run(
      [&] { EXPECT_EQ(CodeOf(service.ReadStream(kChat, Chat(R"(,"stream":true)")).data.back()), "stages_lost"); });
  calls.Run([&] { ExpectError(service.Post(kCompletions, Completion()), 503, "stages_lost"); });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 2; }));
  service.engine().GoAway();
  calls.Join();
  EXPECT_EQ(service.Ended().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOf(service.Post(kCompletions, Completion()).body), "stages_lost");
}

TEST(Serving, ARequestIsCancelledByItsOwnKeyAlone) {
  ScriptedServiceOptions options;
  options.http.keys = TwoKeys();
  options.each_us = 50000;
  ScriptedService service(options);
  HttpHeaders headers = As("ada");
  headers.emplace_back("x-request-id", "mine");
  Beside calls;
  calls.Run([&] {
    const Stream stream = service.ReadStream(kChat, Chat(R"(,"stream":true)"), nullptr, headers);
    EXPECT_EQ(ChoicesOf(stream).back()["finish_reason"], "length");
    EXPECT_EQ(stream.data.back(), "[DONE]");
  });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().sent() > 1; }));
  HttpCall call = {.method = "DELETE", .path = "/api/requests/mine", .headers = As("bob")};
  EXPECT_EQ(service.Call(call).status, 403);
  call.headers = As("ada");
  EXPECT_EQ(service.Call(call).status, 200);
  calls.Join();
  EXPECT_EQ(service.Call(call).status, 404);
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 1; }));
}

TEST(Serving, ARequestThatIsCancelledBeforeItsFirstTokenIsToldSoAndNotToComeAgain) {
  ScriptedService service;
  service.engine().Hold(true);
  Beside calls;
  calls.Run([&] {
    const HttpReply reply = service.Post(kCompletions, Completion(), {{"x-request-id", "whole"}});
    ExpectError(reply, 409, "cancelled");
    EXPECT_EQ(FindHeader(reply.headers, "x-should-retry"), "false");
  });
  calls.Run([&] {
    const Stream stream = service.ReadStream(kChat, Chat(R"(,"stream":true)"), nullptr, {{"x-request-id", "stream"}});
    EXPECT_EQ(CodeOf(stream.data.back()), "cancelled");
  });
  ASSERT_TRUE(ComesTrue([&] { return service.engine().submitted() == 2; }));
  HttpCall call;
  call.method = "DELETE";
  for (const char* id : {"whole", "stream"}) {
    call.path = absl::StrCat("/api/requests/", id);
    EXPECT_EQ(service.Call(call).status, 200);
  }
  calls.Join();
  EXPECT_TRUE(ComesTrue([&] { return service.engine().cancelled() == 2; }));
  EXPECT_EQ(service.session().Status()->unfinished, 0);
}

TEST(Serving, WritesALineARequestAndNoPromptUnlessAskedTo) {
  const testing::TempDir directory;
  ScriptedServiceOptions options;
  const std::string access = directory.File("access"), prompts = directory.File("prompts");
  auto access_log = LineLog::Open(access, false), prompt_log = LineLog::Open(prompts, true);
  ASSERT_TRUE(access_log.ok() && prompt_log.ok());
  options.serving.calls.access_log = *std::move(access_log);
  options.serving.calls.prompt_log = *std::move(prompt_log);
  ScriptedService service(options);
  service.Post(kCompletions, Completion());
  service.Get("/nowhere").IgnoreError();
  ASSERT_TRUE(ComesTrue([&] { return absl::StrContains(testing::ReadFileOrDie(access), "nowhere"); }));
  const std::string text = testing::ReadFileOrDie(access);
  const Json first = Json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["key"], "anonymous");
  EXPECT_EQ(first["route"], kCompletions);
  EXPECT_EQ(first["status"], 200);
  EXPECT_GT(first["completion_tokens"], 5);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_FALSE(absl::StrContains(text, "Say it."));
  EXPECT_TRUE(absl::StrContains(testing::ReadFileOrDie(prompts), "Say it."));
  EXPECT_TRUE(absl::StrContains(testing::ReadFileOrDie(prompts), "three four"));
}

}  // namespace
}  // namespace stagecoach
