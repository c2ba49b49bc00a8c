#include "coordinator/serve/api/batch_line.h"

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

// As `batch -n 256` has it; calls point to it.
const ToyService& BatchService() {
  static const ToyService* const kService = [] {
    auto* service = new ToyService;
    service->model.completion_tokens = 256;
    service->model.chat_tokens = 256;
    service->context.context_tokens = 0;
    return service;
  }();
  return *kService;
}

BatchLine Parse(const std::string& text) {
  BatchLine line = ParseBatchLine(3, text);
  if (!line.error.has_value()) PrepareBatchLine(BatchService().model, BatchService().context, &line);
  return line;
}

GenerationRequest LineRequest(const std::string& text) {
  const BatchLine line = Parse(text);
  EXPECT_FALSE(line.error.has_value()) << line.error->message;
  return line.error.has_value() ? GenerationRequest() : line.call->TakeRequests().front();
}

// A line whose body has the given fields beside its prompt.
std::string BodyWith(const std::string& fields) {
  return R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x",)" + fields + "}}";
}
BatchLine ParseBody(const std::string& fields) { return Parse(BodyWith(fields)); }

TEST(BatchLine, ReadsAWholeRequest) {
  const BatchLine line = Parse(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{
          "model":"m","prompt":"Once","max_tokens":7,
          "temperature":50.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":25,"frequency_penalty":0.5,
          "repetition_penalty":1.25,"repeat_last_n":-1,"seed":5,"stop":["\n","END"],"logprobs":30,
          "logit_bias":{"17":-1000,"263":2},"n":1,"best_of":1,"echo":false,"stream":false,"stream_options":{},"user":"u"}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_EQ(line.number, 3);
  EXPECT_EQ(line.custom_id, "a");
  const GenerationRequest request = line.call->TakeRequests().front();
  EXPECT_EQ(request.max_new_tokens, 7);
  SamplingParams expected;
  expected.temperature = 50.5f;
  expected.top_p = 0.9f;
  expected.top_k = 40;
  expected.min_p = 0.1f;
  expected.presence_penalty = 25;
  expected.frequency_penalty = 0.5f;
  expected.repeat_penalty = 1.25f;
  expected.repeat_last_n = -1;
  expected.seed = 5;
  expected.logprobs = 30;
  expected.logit_bias = {{17, -1000.0f}, {263, 2.0f}};
  EXPECT_EQ(request.sampling, expected) << "all that the engine can do, where an API's own range is narrower";
}

TEST(BatchLine, UsesTheDefaultsForWhatIsAbsentOrNull) {
  const GenerationRequest request = LineRequest(
      BodyWith(R"("max_tokens":null,"temperature":null,"stop":null,"logprobs":null,"n":null,"stream":null)"));
  EXPECT_EQ(request.max_new_tokens, 256);
  SamplingParams expected;
  expected.seed = 11;
  EXPECT_EQ(request.sampling, expected);
}

TEST(BatchLine, TakesTokenIdsAndSeedsOf64Bits) {
  EXPECT_THAT(LineRequest(R"({"custom_id":"a","body":{"prompt":[1,2,263],"stop":"x"}})").prompt,
              ElementsAre(1, 2, 263));
  EXPECT_EQ(LineRequest(BodyWith(R"("seed":18446744073709551615)")).sampling.seed, 18446744073709551615u);
}

TEST(BatchLine, TakesConversations) {
  BatchLine line =
      Parse(R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi"}]}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_EQ(line.call->TakeRequests().front().max_new_tokens, 256);
  const Json body = Json::parse(Answer(line.call.get(), {'Y', kImEnd}, pb::RequestFinished::REASON_STOP));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Y");
}

TEST(BatchLine, TakesAPrediction) {
  const GenerationRequest request = LineRequest(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi"}],)"
      R"("prediction":{"type":"content","content":"Yes"}}})");
  ASSERT_NE(request.prediction, nullptr);
  EXPECT_EQ(*request.prediction, Bytes("Yes"));
}

TEST(BatchLine, SaysWhatIsNoJson) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {{"{\"custom_id\":", "parse error"},
               {"{\"custom_id\":\"cut", "parse error"},
               {"[1]", "expected an object, found array"},
               {"\"text\"", "expected an object, found string"},
               {"{\"custom_id\":\"\xff\"}", "UTF-8"}};
  for (const auto& wrong : cases) {
    SCOPED_TRACE(wrong.text);
    const BatchError error = Parse(wrong.text).error.value();
    EXPECT_EQ(error.code, "invalid_json");
    EXPECT_THAT(error.message, HasSubstr(wrong.message));
  }
}

TEST(BatchLine, WantsACustomId) {
  EXPECT_EQ(Parse(R"({"body":{"prompt":"x"}})").error->code, "missing_custom_id");
  EXPECT_EQ(Parse(R"({"custom_id":5,"body":{"prompt":"x"}})").error->code, "missing_custom_id");
  EXPECT_EQ(Parse(R"({"custom_id":"","body":{"prompt":"x"}})").error->code, "missing_custom_id");
}

TEST(BatchLine, KeepsTheCustomIdOfABadLine) {
  const BatchLine line = ParseBody(R"("n":2)");
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.error->code, "invalid_request");
}

struct BadBody {
  const char* fields;
  const char* message;
};

TEST(BatchLine, RefusesWhatItCannotHonour) {
  for (const BadBody& bad :
       std::initializer_list<BadBody>{{R"("n":2)", "'n': 2 answers to a prompt are not supported"},
                                      {R"("best_of":3)", "'best_of'"},
                                      {R"("echo":true)", "'echo': is not supported"},
                                      {R"("stream":true)", "'stream': is not supported"},
                                      {R"("max_token":5)", "'max_token': is no field that is known here"},
                                      {R"("temperature":-1)", "'temperature': -1 is out of range, expected 0 to 100"},
                                      {R"("temperature":1e999)", ""},
                                      {R"("logit_bias":{"1":1e39})", "'logit_bias': 1e+39 is out of range"},
                                      {R"("max_tokens":0)", "'max_tokens': 0 is out of range"},
                                      {R"("top_p":2)", "'top_p': 2 is out of range"},
                                      {R"("stop":7)", "'stop': expected a string"},
                                      {R"("logprobs":129)", "'logprobs': 129 is out of range, expected 0 to 128"},
                                      {R"("model":7)", "'model': expected a string"}}) {
    EXPECT_THAT(ParseBody(bad.fields).error.value().message, HasSubstr(bad.message)) << bad.fields;
  }
}

TEST(BatchLine, DoesNotDescendIntoWhatIsNestedDeeply) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(ParseBody("\"n\":" + deep).error.value().code, "invalid_json");
  EXPECT_THAT(ParseBody(R"("n":[[1]])").error->message, HasSubstr("'n': array answers"));
}

TEST(BatchLine, RefusesPromptsThatAreNotOnePrompt) {
  const struct {
    const char* prompt;
    const char* message;
  } cases[] = {{R"("")", "'prompt': is empty"},
               {"[]", "'prompt': is empty"},
               {R"(["a","b"])", "expected one string or one list of token ids"},
               {R"([1,"a"])", "expected one string or one list of token ids"},
               {"[264]", "'prompt'"},
               {"[-1]", "'prompt'"},
               {"5", "'prompt'"},
               {"[[1,2]]", "'prompt'"},
               {"{}", "'prompt'"}};
  for (const auto& wrong : cases) {
    const BatchLine line = Parse(std::string(R"({"custom_id":"a","body":{"prompt":)") + wrong.prompt + "}}");
    EXPECT_THAT(line.error.value().message, HasSubstr(wrong.message)) << wrong.prompt;
  }
  EXPECT_THAT(Parse(R"({"custom_id":"a","body":{}})").error->message, HasSubstr("'prompt': is missing"));
  EXPECT_THAT(Parse(R"({"custom_id":"a"})").error->message, HasSubstr("'body': is missing"));
}

TEST(BatchLine, RefusesOtherMethodsAndPlaces) {
  EXPECT_THAT(Parse(R"({"custom_id":"a","method":"GET","body":{"prompt":"x"}})").error->message, HasSubstr("'method'"));
  EXPECT_THAT(Parse(R"({"custom_id":"a","url":"/v1/embeddings","body":{"prompt":"x"}})").error->message,
              HasSubstr("'url': \"/v1/embeddings\" is not supported"));
}

TEST(BatchAnswer, HasOpenAisForm) {
  const BatchLine line = ParseBody(R"("model":"m")");
  const std::string body = Answer(line.call.get(), Bytes("yz"), pb::RequestFinished::REASON_LENGTH);
  const Json json = BatchAnswerJson("7", line, body);
  EXPECT_EQ(json.begin().key(), "id") << "as kBatchLineStart has it";
  EXPECT_EQ(json["custom_id"], "a");
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["response"]["status_code"], 200);
  EXPECT_EQ(CompactJson(json["response"]["body"]), body);
  EXPECT_EQ(json["response"]["body"]["model"], "m") << "as the line has it";
}

TEST(BatchAnswer, SaysWhyThereIsNone) {
  const BatchError rejected = BatchErrorOf(MakeApiError(ApiErrorCode::kContextLengthExceeded, "no room"));
  EXPECT_EQ(rejected.code, "rejected");
  EXPECT_EQ(BatchErrorOf(MakeApiError(ApiErrorCode::kInternal, "broken")).code, "failed");
  BatchLine line = ParseBody(R"("user":"u")");
  line.error = rejected;
  const Json json = BatchErrorJson("8", line);
  EXPECT_TRUE(json["response"].is_null());
  EXPECT_EQ(json["error"]["message"], "line 3: no room");
}

}  // namespace
}  // namespace stagecoach::testing
