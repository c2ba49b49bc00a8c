#include "common/gguf/gguf_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach::testing {
namespace {

using Reason = pb::RequestFinished;

std::vector<TokenId> Ended(std::vector<TokenId> tokens) {
  tokens.push_back(kImEnd);
  return tokens;
}

constexpr char kBody[] =
    R"({"id":"chatcmpl-id7","object":"chat.completion","created":1700000000,"model":"toy","system_fingerprint":"sc-1",)"
    R"("choices":[{"index":0,"finish_reason":"stop","logprobs":null,)"
    R"("message":{"role":"assistant","content":"Yes","refusal":null}}],)"
    R"("usage":{"prompt_tokens":21,"completion_tokens":4,"total_tokens":25,)"
    R"("prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,)"
    R"("accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})";

using ChatAnswer = ToyServiceTest;

TEST_F(ChatAnswer, IsTheBodyThatClientsKnow) {
  const PreparedCall prepared = service.Chat("");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_FALSE(prepared.call->streams());
  EXPECT_EQ(Answer(prepared.call.get(), Ended(Bytes("Yes")), Reason::REASON_STOP), kBody);
}

constexpr char kHead[] =
    R"(data: {"id":"chatcmpl-id7","object":"chat.completion.chunk","created":1700000000,"model":"toy",)"
    R"("system_fingerprint":"sc-1","choices":[)";

TEST_F(ChatAnswer, IsAStreamOfChunksInTheOrderThatClientsKnow) {
  const PreparedCall prepared = service.Chat(R"("stream":true,"stream_options":{"include_usage":true})");
  ASSERT_TRUE(prepared.call->streams());
  const std::string head = kHead, tail = "],\"usage\":null}\n\n";
  EXPECT_EQ(Answer(prepared.call.get(), Ended(Bytes("No")), Reason::REASON_STOP),
            head + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})" +
                tail + head + R"({"index":0,"delta":{"content":"N"},"logprobs":null,"finish_reason":null})" + tail +
                head + R"({"index":0,"delta":{"content":"o"},"logprobs":null,"finish_reason":null})" + tail + head +
                R"({"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"})" + tail + head +
                R"(],"usage":{"prompt_tokens":21,"completion_tokens":3,"total_tokens":24,)" +
                R"("prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,)" +
                R"("accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})" + "\n\ndata: [DONE]\n\n");
}

TEST_F(ChatAnswer, HasNoUsageInAStreamThatDoesNotAskForIt) {
  const PreparedCall prepared = service.Chat(R"("stream":true)");
  const std::vector<Json> events = Events(Answer(prepared.call.get(), Bytes("No"), Reason::REASON_LENGTH));
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_FALSE(events[i].contains("usage"));
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(ChatAnswer, PutsEventsThatWereMergedIntoOneDelta) {
  const PreparedCall prepared = service.Chat(R"("stream":true)");
  prepared.call->Begin();
  const std::vector<Json> events = Events(prepared.call->Take(0, Text("three words here")).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["content"], "three words here");
}

// What a stream says, put together.
struct Streamed {
  std::string content, reasoning, finish_reason;
  Json tokens = Json::array();
};

Streamed Join(const std::vector<Json>& events, int index = 0) {
  Streamed joined;
  for (const Json& event : events) {
    if (!event.is_object() || event["choices"].empty() || event["choices"][0]["index"] != index) continue;
    const Json& choice = event["choices"][0];
    EXPECT_TRUE(choice["delta"]["content"].is_string()) << event;
    joined.content += choice["delta"]["content"].get<std::string>();
    if (choice["delta"].contains("reasoning_content")) {
      joined.reasoning += choice["delta"]["reasoning_content"].get<std::string>();
    }
    if (choice["logprobs"].is_object()) {
      for (const Json& token : choice["logprobs"]["content"]) joined.tokens.push_back(token);
    }
    if (!choice["finish_reason"].is_null()) joined.finish_reason = choice["finish_reason"].get<std::string>();
  }
  return joined;
}

struct Script {
  const char* name;
  const char* fields;
  std::vector<TokenId> tokens;
  Reason::Reason end;
};

std::vector<Script> Scripts() {
  return {
      {"plain", "", Ended(Bytes("Hello")), Reason::REASON_STOP},
      {"cut", "", Bytes("Hello"), Reason::REASON_LENGTH},
      {"stop", R"("stop":["lo w","never"])", Bytes("Hello world"), Reason::REASON_LENGTH},
      {"stop kept", R"("stop":"lo","include_stop_str_in_output":true)", Bytes("Hello world"), Reason::REASON_LENGTH},
      {"a tail that is none", R"("stop":"lower")", Bytes("Hello"), Reason::REASON_LENGTH},
      {"characters", "", Ended(Bytes("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z")), Reason::REASON_STOP},
      {"half a character", "", Bytes("a\xE2\x82"), Reason::REASON_LENGTH},
      {"no text", "", Ended({}), Reason::REASON_STOP},
      {"a stop token", R"("stop_token_ids":[33])", Bytes("Hey!"), Reason::REASON_STOP},
  };
}

TEST_F(ChatAnswer, IsTheSameAsAStreamAndWholeAndHoweverEventsAreCut) {
  for (const Script& script : Scripts()) {
    const std::string fields =
        absl::StrCat(R"("logprobs":true,"top_logprobs":2)", *script.fields ? "," : "", script.fields);
    const PreparedCall whole = service.Chat(fields), at_once = service.Chat(fields);
    ASSERT_FALSE(whole.error.has_value()) << script.name;
    const std::string body = Answer(whole.call.get(), script.tokens, script.end);
    EXPECT_EQ(Answer(at_once.call.get(), script.tokens, script.end, true), body) << script.name;
    const Json choice = Json::parse(body)["choices"][0];
    for (const bool merged : {false, true}) {
      const PreparedCall stream = service.Chat(fields + R"(,"stream":true)");
      const Streamed joined = Join(Events(Answer(stream.call.get(), script.tokens, script.end, merged)));
      EXPECT_EQ(joined.content, choice["message"]["content"]) << script.name;
      EXPECT_EQ(joined.finish_reason, choice["finish_reason"]) << script.name;
      EXPECT_EQ(joined.tokens, choice["logprobs"]["content"]) << script.name;
    }
  }
}

// A model that was not made for the template writes the end of a message in letters.
TEST_F(ChatAnswer, EndsBeforeWhatTheTemplateEndsMessagesWith) {
  const auto foreign = OpenOrDie(ToyBytePairs().File("gpt2", "qwen2"));
  const GgufWriter file = ToyBytePairs().File("gpt2", "qwen2");
  const TempDir directory;
  ASSERT_TRUE(file.Write(directory.File("m.gguf")).ok());
  const auto opened = *GgufFile::Open(directory.File("m.gguf"));
  const ChatFormat format({.built_in = "chatml"}, opened->metadata(), foreign.get());
  service.model.chat = &format;
  service.model.tokenizer = foreign.get();
  for (const char* fields : {"", R"("include_stop_str_in_output":true)", R"("stop":["x"],"stream":true)"}) {
    const PreparedCall prepared = service.Chat(fields);
    ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
    const std::string answer = Answer(prepared.call.get(), Bytes("Yes<|im_end|>\nNo"), Reason::REASON_LENGTH);
    EXPECT_THAT(answer, HasSubstr("\"finish_reason\":\"stop\"")) << fields;
    EXPECT_THAT(answer, Not(HasSubstr("im_end"))) << fields;
    EXPECT_THAT(answer, Not(HasSubstr("No"))) << fields;
  }
  const PreparedCall prompt = service.Complete(R"("max_tokens":50)");
  EXPECT_THAT(Answer(prompt.call.get(), Bytes("<|im_end|>x"), Reason::REASON_LENGTH), HasSubstr("|>x"));
}

TEST_F(ChatAnswer, NeverShowsAStopStringAndCancelsWhatIsOfNoMoreUse) {
  const PreparedCall prepared = service.Chat(R"("stop":["lo w"],"stream":true)");
  std::string text = Join(Events(prepared.call->Begin().bytes)).content;
  for (const char letter : std::string("Hello ")) {
    const ApiCall::Output output = prepared.call->Take(0, Text(std::string(1, letter)));
    EXPECT_THAT(output.cancel, ElementsAre());
    text += Join(Events(output.bytes)).content;
  }
  EXPECT_EQ(text, "Hel") << "the rest may become the stop string";
  const ApiCall::Output output = prepared.call->Take(0, Text("world"));
  EXPECT_THAT(output.cancel, ElementsAre(0));
  EXPECT_TRUE(output.ended);
  const Streamed end = Join(Events(output.bytes));
  EXPECT_EQ(end.content, "");
  EXPECT_EQ(end.finish_reason, "stop");
  EXPECT_EQ(prepared.call->usage().completion_tokens, 7) << "what comes behind the stop string does not count";
  EXPECT_EQ(prepared.call->Take(0, Text("more")).bytes, "");
}

TEST_F(ChatAnswer, LeavesAStopTokenOutOfTheText) {
  const PreparedCall prepared = service.Chat(R"("stop_token_ids":[33])");
  EXPECT_THAT(prepared.call->TakeRequests()[0].stop_tokens, ElementsAre(kImEnd, 33));
  const Json body = Json::parse(Answer(prepared.call.get(), Bytes("Hey!"), Reason::REASON_STOP));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hey");
  EXPECT_EQ(body["usage"]["completion_tokens"], 4) << "every sampled token";
}

TEST_F(ChatAnswer, GivesEachTokenWithTheChunkThatReleasesItsLastByte) {
  const PreparedCall prepared = service.Chat(R"("logprobs":true,"top_logprobs":1,"stream":true)");
  prepared.call->Begin();
  std::vector<Json> events = Events(prepared.call->Take(0, Tokens({0xC3})).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"], nullptr) << "half of a character";
  events = Events(prepared.call->Take(0, Tokens({0xA9})).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["content"], "\xC3\xA9");
  const Json& tokens = events[0]["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0]["bytes"], Json::array({0xC3})) << "exact where the text cannot be";
  EXPECT_EQ(tokens[0]["logprob"], -1.95);
  EXPECT_EQ(tokens[1]["bytes"], Json::array({0xA9}));
  EXPECT_EQ(tokens[1]["top_logprobs"][1]["token"], "x");
  EXPECT_EQ(tokens[1]["top_logprobs"][1]["logprob"], -8.0);
}

TEST_F(ChatAnswer, ListsEverySampledTokenButTheOneThatEndedIt) {
  for (const Script& script : Scripts()) {
    const PreparedCall prepared =
        service.Chat(absl::StrCat(R"("logprobs":true)", *script.fields ? "," : "", script.fields));
    const Json body = Json::parse(Answer(prepared.call.get(), script.tokens, script.end));
    const Json& choice = body["choices"][0];
    const int64_t ends = choice["finish_reason"] == "stop" && std::string(script.name) != "stop kept" ? 1 : 0;
    EXPECT_EQ(choice["logprobs"]["content"].size(), body["usage"]["completion_tokens"].get<int64_t>() - ends)
        << script.name;
    EXPECT_TRUE(choice["logprobs"]["refusal"].is_null());
  }
}

TEST_F(ChatAnswer, HasItsChoicesSideBySide) {
  const PreparedCall prepared = service.Chat(R"("n":2,"stream":true,"seed":5,"stream_options":{"include_usage":true})");
  const std::vector<GenerationRequest> requests = prepared.call->TakeRequests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt, requests[1].prompt);
  EXPECT_EQ(requests[0].sampling.seed, 5u);
  EXPECT_EQ(requests[1].sampling.seed, 6u);
  std::string bytes = prepared.call->Begin().bytes;
  EXPECT_EQ(Events(bytes).size(), 2u);
  bytes += prepared.call->Take(1, Text("B")).bytes;
  bytes += prepared.call->Take(0, Text("A")).bytes;
  bytes += prepared.call->Take(1, Then(Tokens({'b', kImEnd}), Finished(Reason::REASON_STOP))).bytes;
  const ApiCall::Output last = prepared.call->Take(0, Then(Text("a"), Finished(Reason::REASON_LENGTH)));
  EXPECT_TRUE(last.ended);
  const std::vector<Json> events = Events(bytes + last.bytes);
  EXPECT_EQ(Join(events, 0).content, "Aa");
  EXPECT_EQ(Join(events, 0).finish_reason, "length");
  EXPECT_EQ(Join(events, 1).content, "Bb");
  EXPECT_EQ(Join(events, 1).finish_reason, "stop");
  const Json& usage = events[events.size() - 2]["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 21) << "the prompt counts once";
  EXPECT_EQ(usage["completion_tokens"], 5);
  EXPECT_EQ(prepared.call->choices_a_prompt(), 2);
}

TEST_F(ChatAnswer, PartsReasoningFromContent) {
  service.model.output_format = OutputFormat::kHermesJson;
  std::vector<TokenId> tokens = {kThink};
  for (const TokenId token : Bytes("hm")) tokens.push_back(token);
  tokens.push_back(kEndThink);
  for (const TokenId token : Ended(Bytes("ok"))) tokens.push_back(token);
  const Json body = Whole(service.Chat(""), tokens, Reason::REASON_STOP);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "ok");
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(body["usage"]["completion_tokens"], 7);
  EXPECT_GE(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
  const PreparedCall stream = service.Chat(R"("stream":true)");
  const Streamed joined = Join(Events(Answer(stream.call.get(), tokens, Reason::REASON_STOP)));
  EXPECT_EQ(joined.content, "ok");
  EXPECT_EQ(joined.reasoning, "hm");

  service.model.reasoning.as_reasoning = true;
  service.model.reasoning.as_reasoning_content = false;
  const Json message = Whole(service.Chat(""), tokens, Reason::REASON_STOP)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "hm");
  EXPECT_FALSE(message.contains("reasoning_content"));

  service.model.reasoning.parse = false;
  const PreparedCall raw = service.Chat("");
  EXPECT_EQ(Json::parse(Answer(raw.call.get(), tokens, Reason::REASON_STOP))["choices"][0]["message"]["content"],
            "<think>hm</think>ok");
}

// The same rule as of completions, whether there is a parser or not.
TEST_F(ChatAnswer, HasNoControlTokensUnlessAskedForThem) {
  const std::vector<TokenId> tokens = {'a', kImStart, 'b', kImEnd};
  const auto text = [&](const char* fields) {
    return Whole(service.Chat(fields), tokens, Reason::REASON_STOP)["choices"][0]["message"]["content"];
  };
  EXPECT_EQ(text(""), "ab");
  EXPECT_EQ(text(R"("skip_special_tokens":false)"), "a<|im_start|>b");
  service.model.output_format = OutputFormat::kHermesJson;
  EXPECT_EQ(text(""), "ab");
  EXPECT_EQ(text(R"("skip_special_tokens":false)"), "a<|im_start|>b");
  // The markup is to stay in the text, and many a model's is made of control tokens.
  service.model.reasoning.parse = false;
  EXPECT_EQ(text(""), "a<|im_start|>b");
  EXPECT_EQ(text(R"("skip_special_tokens":true)"), "ab");
}

TEST_F(ChatAnswer, HasAChunkForATokenWithoutText) {
  const PreparedCall prepared = service.Chat(R"("stream":true)");
  const std::vector<Json> events = Events(prepared.call->Take(0, Tokens({kImStart})).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json({{"content", ""}}));
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], nullptr);
}

TEST_F(ChatAnswer, IsCutWhereItsRequestWasCancelled) {
  const Json body = Whole(service.Chat(""), Bytes("Hel"), Reason::REASON_CANCELLED);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hel");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length") << "nobody reads another word";
}

TEST_F(ChatAnswer, EndsWithAnErrorWhereItCannotGoOn) {
  const PreparedCall stream = service.Chat(R"("stream":true,"n":2)"), whole = service.Chat("");
  stream.call->Begin();
  stream.call->Take(0, Then(Text("Hi"), Finished(Reason::REASON_LENGTH)));
  stream.call->Take(1, Text("He"));
  const ApiCall::Output failed = stream.call->Take(1, Finished(Reason::REASON_FAILED, "no finite logits"));
  EXPECT_TRUE(failed.ended);
  EXPECT_EQ(failed.bytes,
            "data: {\"error\":{\"message\":\"no finite logits\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":\"internal\"}}\n\n");
  EXPECT_EQ(failed.error->status, 500);
  EXPECT_THAT(failed.cancel, ElementsAre(1));
  EXPECT_EQ(stream.call->Take(1, Text("more")).bytes, "");
  const ApiCall::Output lost = whole.call->Fail(MakeApiError(ApiErrorCode::kStagesLost, "gone"));
  EXPECT_EQ(lost.bytes, R"({"error":{"message":"gone","type":"unavailable_error","param":null,"code":"stages_lost"}})");
  EXPECT_EQ(lost.error->status, 503);
  EXPECT_EQ(whole.call->Fail(MakeApiError(ApiErrorCode::kStagesLost, "gone")).bytes, "") << "once";
}

}  // namespace
}  // namespace stagecoach::testing
