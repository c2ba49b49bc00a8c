#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach::testing {
namespace {

using Finish = pb::RequestFinished;

using CompletionAnswer = ToyServiceTest;

TEST_F(CompletionAnswer, IsTheBodyThatClientsKnow) {
  const PreparedCall prepared = service.Complete("");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  EXPECT_EQ(
      Answer(prepared.call.get(), Bytes(" you"), Finish::REASON_LENGTH),
      R"({"id":"cmpl-id7","object":"text_completion","created":1700000000,"model":"toy","system_fingerprint":"sc-1",)"
      R"("choices":[{"index":0,"text":" you","finish_reason":"length","logprobs":null}],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":4,"total_tokens":6,)"
      R"("prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,)"
      R"("accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})");
}

TEST_F(CompletionAnswer, IsAStreamOfTheSameObjects) {
  const PreparedCall prepared = service.Complete(R"("stream":true)");
  const std::string head = R"(data: {"id":"cmpl-id7","object":"text_completion","created":1700000000,"model":"toy",)"
                           R"("system_fingerprint":"sc-1","choices":[)";
  EXPECT_EQ(Answer(prepared.call.get(), {'o', kImEnd}, Finish::REASON_STOP),
            head + R"({"index":0,"text":"o","finish_reason":null,"logprobs":null}]})" + "\n\n" + head +
                R"({"index":0,"text":"","finish_reason":"stop","logprobs":null}]})" + "\n\ndata: [DONE]\n\n");
}

// A model that was trained for it, with what begins another file.
struct FillService : ToyService {
  FillService() {
    ToyVocabulary toy = ToyBytePairs();
    for (const char* text : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}) toy.Add(text, 3);
    end = toy.Add("<|endoftext|>", 3);
    file = toy.Add("<|file_sep|>", 3);
    fill_tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
    model.tokenizer = fill_tokenizer.get();
    model.vocab = fill_tokenizer->vocab_size();
  }
  TokenId end = 0, file = 0;
  static constexpr TokenId kPrefix = 260, kSuffix = 261, kMiddle = 262;
  std::unique_ptr<Tokenizer> fill_tokenizer;
};

TEST(CompletionSuffix, MakesThePromptOfAGapWhoseControlTokensAreOursAlone) {
  const FillService service;
  const PreparedCall prepared = service.Complete(R"("suffix":"<|fim_middle|>")");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  const GenerationRequest request = prepared.call->TakeRequests().front();
  std::vector<TokenId> prompt = {service.kPrefix, 'H', 'i', service.kSuffix};
  for (const TokenId token : Bytes("<|fim_middle|>")) prompt.push_back(token);
  prompt.push_back(service.kMiddle);
  EXPECT_EQ(request.prompt, prompt);
  EXPECT_THAT(request.stop_tokens, ElementsAre(service.end, service.file));
  EXPECT_THAT(service.Complete(R"("suffix":"ll","ignore_eos":true)").call->TakeRequests().front().stop_tokens,
              ElementsAre());
  EXPECT_THAT(service.Complete(R"("suffix":"","parse_special":true)").call->TakeRequests().front().prompt,
              ElementsAre('H', 'i'));
}

TEST(CompletionSuffix, CountsAsPromptAndStandsOnlyBesideText) {
  FillService service;
  const auto error = [&service](const std::string& body) {
    const PreparedCall prepared = service.Prepare(kCompletionsApi, body);
    EXPECT_TRUE(prepared.error.has_value()) << body;
    return prepared.error.has_value() ? prepared.error->message : "";
  };
  EXPECT_THAT(error(R"({"prompt":[72],"suffix":"x"})"), HasSubstr("'suffix': stands beside a prompt of token ids"));
  EXPECT_THAT(error(R"({"prompt":"a","suffix":"x","echo":true})"), HasSubstr("'echo': is true beside 'suffix'"));
  EXPECT_THAT(error(R"({"prompt":"a","suffix":"x","parse_special":true})"), HasSubstr("'parse_special': is true"));
  service.context.context_tokens = 6;
  EXPECT_THAT(error(R"({"prompt":"ab","suffix":"x","max_tokens":4})"), HasSubstr("6 tokens > 5 maximum"));
  EXPECT_FALSE(service.Prepare(kCompletionsApi, R"({"prompt":"a","suffix":"x"})").error.has_value());
}

TEST_F(CompletionAnswer, HasNoControlTokensUnlessAskedForThem) {
  const std::vector<TokenId> tokens = {'a', kImStart, 'b', kImEnd};
  const auto text = [&](const char* fields) {
    return Whole(service.Complete(fields), tokens, Finish::REASON_STOP)["choices"][0]["text"];
  };
  EXPECT_EQ(text(""), "ab");
  EXPECT_EQ(text(R"("skip_special_tokens":true)"), "ab");
  EXPECT_EQ(text(R"("skip_special_tokens":false)"), "a<|im_start|>b");
  // So is the text of a prompt of ids.
  const auto echo = [&](const std::string& more) {
    const std::string body = R"({"prompt":[72,260,105],"echo":true)" + more + "}";
    return Whole(service.Prepare(kCompletionsApi, body), {'a'}, Finish::REASON_LENGTH)["choices"][0]["text"];
  };
  EXPECT_EQ(echo(""), "Hia");
  EXPECT_EQ(echo(R"(,"skip_special_tokens":false)"), "H<|im_start|>ia");
}

TEST_F(CompletionAnswer, HasAChunkForEveryTokenWhenItComes) {
  const PreparedCall prepared = service.Complete(R"("stream":true,"stop":"xy","logprobs":0)");
  const auto texts = [&](TokenId token) {
    std::vector<std::string> texts;
    for (const Json& event : Events(prepared.call->Take(0, Tokens({token})).bytes)) {
      texts.push_back(event["choices"][0]["text"]);
    }
    return texts;
  };
  EXPECT_THAT(texts('a'), ElementsAre("a"));
  EXPECT_THAT(texts(kImStart), ElementsAre("")) << "a token without text";
  EXPECT_THAT(texts(0xC3), ElementsAre("")) << "half of a character";
  EXPECT_THAT(texts(0xA9), ElementsAre("\xC3\xA9"));
  EXPECT_THAT(texts('x'), ElementsAre("")) << "may become the stop string";
  EXPECT_THAT(texts(kImEnd), ElementsAre()) << "ends the answer";
}

TEST_F(CompletionAnswer, HasLogprobsInFourLists) {
  const Json body = Whole(service.Complete(R"("logprobs":2)"), {'a', 0xC3, 0xA9, 'z', kImEnd}, Finish::REASON_STOP);
  const Json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(body["choices"][0]["text"], "a\xC3\xA9z");
  EXPECT_EQ(logprobs["tokens"], Json({"a", "bytes:\\xc3", "bytes:\\xa9", "z", "<|im_end|>"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({-0.97, -1.95, -1.69, -1.22, -2.61}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 1, 2, 3})) << "in code points";
  EXPECT_EQ(logprobs["top_logprobs"][0], Json({{"a", -0.97}, {"x", -8.0}}));
}

// What a stream says of one choice, put together.
struct StreamedText {
  std::string text, finish_reason;
  Json tokens = Json::array(), offsets = Json::array(), token_logprobs = Json::array();
};

StreamedText JoinText(const std::vector<Json>& events, int index = 0) {
  StreamedText joined;
  for (const Json& event : events) {
    if (!event.is_object() || event["choices"].empty() || event["choices"][0]["index"] != index) continue;
    const Json& choice = event["choices"][0];
    joined.text += choice["text"].get<std::string>();
    if (choice["logprobs"].is_object()) {
      for (const Json& token : choice["logprobs"]["tokens"]) joined.tokens.push_back(token);
      for (const Json& offset : choice["logprobs"]["text_offset"]) joined.offsets.push_back(offset);
      for (const Json& number : choice["logprobs"]["token_logprobs"]) joined.token_logprobs.push_back(number);
    }
    if (!choice["finish_reason"].is_null()) joined.finish_reason = choice["finish_reason"].get<std::string>();
  }
  return joined;
}

TEST_F(CompletionAnswer, IsTheSameAsAStreamAndWholeAndHoweverEventsAreCut) {
  struct Script {
    const char* fields;
    std::string text;
    Finish::Reason end;
  };
  for (const Script& script : std::initializer_list<Script>{
           {R"("logprobs":1)", "some text", Finish::REASON_LENGTH},
           {R"("logprobs":1,"echo":true)", "some text", Finish::REASON_LENGTH},
           {R"("logprobs":0,"stop":"te")", "some text", Finish::REASON_LENGTH},
           {R"("logprobs":0,"stop":"te","include_stop_str_in_output":true)", "some text", Finish::REASON_LENGTH},
           {R"("logprobs":1,"stop_token_ids":[33])", "some!", Finish::REASON_STOP},
           {R"("logprobs":1)", "\xF0\x9F\x98\x80\xF0\x9F", Finish::REASON_LENGTH}}) {
    std::vector<std::string> bodies;
    StreamedText joined[2];
    for (const bool at_once : {false, true}) {
      const PreparedCall whole = service.Complete(script.fields);
      ASSERT_FALSE(whole.error.has_value()) << script.fields;
      bodies.push_back(Answer(whole.call.get(), Bytes(script.text), script.end, at_once));
      const PreparedCall stream = service.Complete(std::string(script.fields) + R"(,"stream":true)");
      joined[at_once] = JoinText(Events(Answer(stream.call.get(), Bytes(script.text), script.end, at_once)));
    }
    EXPECT_EQ(bodies[0], bodies[1]) << script.fields;
    const Json choice = Json::parse(bodies[0])["choices"][0];
    for (const StreamedText& stream : joined) {
      EXPECT_EQ(stream.text, choice["text"]) << script.fields;
      EXPECT_EQ(stream.finish_reason, choice["finish_reason"]) << script.fields;
      EXPECT_EQ(stream.tokens, choice["logprobs"]["tokens"]) << script.fields;
      EXPECT_EQ(stream.offsets, choice["logprobs"]["text_offset"]) << script.fields;
      EXPECT_EQ(stream.token_logprobs, choice["logprobs"]["token_logprobs"]) << script.fields;
    }
  }
}

SessionEvent Scores(int32_t start, std::vector<float> logprobs, std::vector<TokenLogprob> top = {}) {
  SessionEvent event;
  event.scores.push_back({.start = start, .logprobs = std::move(logprobs), .top = std::move(top)});
  return event;
}

TEST_F(CompletionAnswer, HoldsTheSampledTokenBesideTheMostProbable) {
  const PreparedCall prepared = service.Complete(R"("logprobs":1)");
  SessionEvent event = Tokens({'a'});
  event.tokens[0].top = {{'b', -0.5f}};
  event.finished = Finished(Finish::REASON_LENGTH).finished;
  prepared.call->Begin();
  const Json body = Json::parse(prepared.call->Take(0, event).bytes);
  EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"], Json::array({{{"b", -0.5}, {"a", -0.97}}}));
}

TEST_F(CompletionAnswer, PutsThePromptFirst) {
  const PreparedCall prepared = service.Complete(R"("echo":true,"stream":true)");
  EXPECT_EQ(prepared.call->TakeRequests()[0].score_from, -1);
  EXPECT_EQ(JoinText(Events(prepared.call->Begin().bytes)).text, "Hi") << "nothing has to be waited for";
  EXPECT_EQ(JoinText(Events(prepared.call->Take(0, Text("!")).bytes)).text, "!");
  const Json body = Whole(service.Prepare(kCompletionsApi, R"({"prompt":[72,195,169],"echo":true})"), Bytes("!"),
                          Finish::REASON_LENGTH);
  EXPECT_EQ(body["choices"][0]["text"], "H\xC3\xA9!");
}

TEST_F(CompletionAnswer, ScoresThePromptThatItPutsFirst) {
  const PreparedCall prepared =
      service.Prepare(kCompletionsApi, R"({"prompt":"h\u00e9y","echo":true,"logprobs":1,"stream":true})");
  const GenerationRequest request = prepared.call->TakeRequests()[0];
  EXPECT_EQ(request.score_from, 1);
  EXPECT_EQ(request.sampling.prompt_logprobs, 1);
  EXPECT_EQ(prepared.call->Begin().bytes, "") << "the scores are missing";
  EXPECT_EQ(prepared.call->Take(0, Scores(0, {-1, -2}, {{'x', -0.5f}, {0xA9, -2}})).bytes, "");
  std::string bytes = prepared.call->Take(0, Scores(2, {-3}, {{kNoToken, 0}})).bytes;
  bytes += prepared.call->Take(0, Text("!")).bytes;
  bytes += prepared.call->Take(0, Finished(Finish::REASON_LENGTH)).bytes;
  const std::vector<Json> events = Events(bytes);
  const Json& first = events[0]["choices"][0];
  EXPECT_EQ(first["text"], "h\xC3\xA9y");
  EXPECT_EQ(first["logprobs"]["tokens"], Json({"h", "bytes:\\xc3", "bytes:\\xa9", "y"}));
  EXPECT_EQ(first["logprobs"]["token_logprobs"], Json({nullptr, -1.0, -2.0, -3.0})) << "nothing comes before the first";
  EXPECT_EQ(first["logprobs"]["top_logprobs"], Json::array({nullptr,
                                                            {{"x", -0.5}, {"bytes:\\xc3", -1.0}},
                                                            Json::object({{"bytes:\\xa9", -2.0}}),
                                                            Json::object({{"y", -3.0}})}));
  EXPECT_EQ(first["logprobs"]["text_offset"], Json({0, 1, 1, 2})) << "as in an answer";
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], Json({3}));
}

// The body of a prompt that is echoed and scored, with nothing behind it.
Json Scored(const ToyService& service, const std::string& prompt, const std::vector<float>& logprobs) {
  const PreparedCall prepared = service.Prepare(
      kCompletionsApi, absl::StrCat(R"({"echo":true,"logprobs":0,"max_tokens":0,"prompt":)", prompt, "}"));
  CHECK(!prepared.error.has_value());
  const GenerationRequest request = prepared.call->TakeRequests()[0];
  EXPECT_EQ(request.max_new_tokens, 0);
  EXPECT_EQ(request.score_from, 1);
  prepared.call->Begin();
  prepared.call->Take(0, Scores(0, logprobs));
  return Json::parse(prepared.call->Take(0, Finished(Finish::REASON_SCORED)).bytes);
}

TEST_F(CompletionAnswer, OffsetsGoOnBehindTokensThatAreNoTextAndASpaceThatFollowsABrokenCharacter) {
  const Json no_text = Scored(service, "[169,72,255,254,105,33]", {-1, -1, -1, -1, -1})["choices"][0];
  EXPECT_EQ(no_text["text"], "\xEF\xBF\xBDH\xEF\xBF\xBD\xEF\xBF\xBDi!");
  EXPECT_EQ(no_text["logprobs"]["text_offset"], Json({0, 1, 2, 2, 4, 5}));
  const Json broken = Scored(service, "[226,32,72,105]", {-1, -1, -1})["choices"][0];
  EXPECT_EQ(broken["text"], "\xEF\xBF\xBD Hi");
  EXPECT_EQ(broken["logprobs"]["text_offset"], Json({0, 1, 2, 3}));
}

TEST_F(CompletionAnswer, CanScoreAPromptAndNothingElse) {
  const Json body = Scored(ToyService(), R"("Hi")", {-1.5});
  EXPECT_EQ(body["choices"][0]["text"], "Hi");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"], Json({nullptr, -1.5}));
  EXPECT_TRUE(body["choices"][0]["logprobs"]["top_logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(CompletionAnswer, HasEachPromptsChoicesTogether) {
  service.context.max_choices = 4;
  const PreparedCall prepared =
      service.Prepare(kCompletionsApi, R"({"prompt":["a","bc"],"n":2,"seed":9,"stream":true})");
  ASSERT_FALSE(prepared.error.has_value()) << prepared.error->message;
  const std::vector<GenerationRequest> requests = prepared.call->TakeRequests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_THAT(requests[1].prompt, ElementsAre('a'));
  EXPECT_THAT(requests[2].prompt, ElementsAre('b', 'c'));
  EXPECT_EQ(requests[1].sampling.seed, 10u);
  EXPECT_EQ(requests[2].sampling.seed, 9u) << "as the request of that prompt alone";
  std::string bytes = prepared.call->Begin().bytes;
  for (int choice = 3; choice >= 0; --choice) {
    const ApiCall::Output output = prepared.call->Take(
        choice, Then(Text(std::string(1, static_cast<char>('0' + choice))), Finished(Finish::REASON_LENGTH)));
    EXPECT_EQ(output.ended, choice == 0);
    bytes += output.bytes;
  }
  for (int choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(JoinText(Events(bytes), choice).text, std::to_string(choice));
  }
  EXPECT_EQ(prepared.call->usage().prompt_tokens, 3);
}

// A stop string that is a control token becomes one of the tokens, of which a slice has room for so many.
TEST_F(CompletionAnswer, TokensThatEndAnAnswerAreBoundedTogether) {
  const auto with = [this](int ids) {
    std::string list = "17";
    for (int i = 1; i < ids; ++i) absl::StrAppend(&list, ",17");
    return service.Complete(absl::StrCat(R"("stop":"<|im_start|>","stop_token_ids":[)", list, "]"));
  };
  EXPECT_FALSE(with(63).error.has_value());
  const PreparedCall refused = with(64);
  EXPECT_EQ(refused.error.value().param, "stop");
  EXPECT_THAT(refused.error->message, HasSubstr("65 tokens that end an answer, expected at most 64"));
}

TEST_F(CompletionAnswer, TellsHowFarThePromptIsAndWhatWasCached) {
  const PreparedCall prepared =
      service.Complete(R"("return_progress":true,"stream":true,"n":2,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(prepared.call->TakeRequests()[0].report_progress);
  SessionEvent event;
  event.prefill.emplace();
  event.prefill->set_total(2);
  event.prefill->set_processed(1);
  event.prefill->set_cached(1);
  const std::vector<Json> events = Events(prepared.call->Take(0, event).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(CompactJson(events[0]["prompt_progress"]), R"({"total":2,"cache":1,"processed":1})");
  EXPECT_EQ(events[0]["choices"][0]["text"], "");
  for (int choice : {0, 1}) {
    SessionEvent end = Finished(Finish::REASON_LENGTH);
    end.finished->mutable_cost()->set_cached_tokens(1 + choice);
    const ApiCall::Output output = prepared.call->Take(choice, end);
    if (choice == 0) continue;
    const std::vector<Json> last = Events(output.bytes);
    EXPECT_EQ(last[last.size() - 2]["usage"]["prompt_tokens_details"]["cached_tokens"], 1)
        << "the second choice found what the first had computed";
  }
}

TEST_F(CompletionAnswer, GivesEachTokenWithTheChunkThatReleasesItsLastByte) {
  const PreparedCall prepared = service.Complete(R"("logprobs":0,"stream":true,"stop":"zz")");
  prepared.call->Begin();
  std::vector<Json> events = Events(prepared.call->Take(0, Tokens({0xC3})).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"], nullptr) << "half of a character";
  events = Events(prepared.call->Take(0, Tokens({0xA9})).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["text"], "\xC3\xA9");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["tokens"], Json({"bytes:\\xc3", "bytes:\\xa9"}));
  events = Events(prepared.call->Take(0, Text("z")).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"], nullptr) << "it may become the stop string";
  events = Events(prepared.call->Take(0, Text("a")).bytes);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["tokens"], Json({"z", "a"}));
}

SessionEvent At(int64_t us, SessionEvent event) {
  event.at_us = us;
  return event;
}

constexpr char kTimings[] =
    R"({"cache_n":1,"prompt_n":1,"prompt_ms":4.0,"prompt_per_token_ms":4.0,"prompt_per_second":250.0,)"
    R"("predicted_n":5,"predicted_ms":20.0,"predicted_per_token_ms":4.0,"predicted_per_second":250.0})";

TEST_F(CompletionAnswer, TellsHowLongItTookWhereAsked) {
  for (const char* fields : {R"("timings":true,"n":2)", R"("timings":true,"n":2,"stream":true)",
                             R"("timings":true,"n":2,"stream":true,"stream_options":{"include_usage":true})"}) {
    const PreparedCall prepared = service.Complete(fields);
    ASSERT_FALSE(prepared.error.has_value()) << fields;
    std::string bytes = prepared.call->Begin().bytes;
    SessionEvent first = At(5000, Text("a"));
    first.cost.emplace().set_prefill_us(4000);
    first.cost->set_cached_tokens(1);
    bytes += prepared.call->Take(0, first).bytes;
    bytes += prepared.call->Take(1, At(6000, Text("ab"))).bytes;
    bytes += prepared.call->Take(0, At(15000, Then(Text("b"), Finished(Finish::REASON_LENGTH)))).bytes;
    bytes += prepared.call->Take(1, At(25000, Then(Text("c"), Finished(Finish::REASON_LENGTH)))).bytes;
    if (!prepared.call->streams()) {
      EXPECT_EQ(CompactJson(Json::parse(bytes)["timings"]), kTimings);
      continue;
    }
    const std::vector<Json> events = Events(bytes);
    for (size_t i = 0; i + 2 < events.size(); ++i) EXPECT_FALSE(events[i].contains("timings")) << i;
    EXPECT_EQ(CompactJson(events[events.size() - 2]["timings"]), kTimings) << "with the last one before [DONE]";
  }
}

TEST_F(CompletionAnswer, HasNumbersForTimesWhereThereIsNothingToDivideBy) {
  const Json body = Whole(service.Complete(R"("timings":true)"), {}, Finish::REASON_CANCELLED);
  EXPECT_EQ(CompactJson(body["timings"]),
            R"({"cache_n":0,"prompt_n":2,"prompt_ms":0.0,"prompt_per_token_ms":0.0,"prompt_per_second":0.0,)"
            R"("predicted_n":0,"predicted_ms":0.0,"predicted_per_token_ms":0.0,"predicted_per_second":0.0})");
  EXPECT_FALSE(Json::parse(Answer(service.Complete("").call.get(), {}, Finish::REASON_CANCELLED)).contains("timings"));
}

TEST_F(CompletionAnswer, SaysWhyTheEngineRefused) {
  const PreparedCall prepared = service.Complete("");
  SessionEvent no_room = Finished(Finish::REASON_REJECTED, "no room");
  no_room.finished->set_code(Finish::CODE_NO_ROOM);
  const ApiCall::Output output = prepared.call->Take(0, no_room);
  EXPECT_TRUE(output.ended);
  EXPECT_EQ(output.error->status, 400);
  EXPECT_EQ(output.error->code, "context_length_exceeded");
  EXPECT_EQ(output.error->message, "no room");
}

}  // namespace
}  // namespace stagecoach::testing
