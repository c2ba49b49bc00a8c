#include "coordinator/front/batch_line.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

BatchDefaults Defaults() {
  BatchDefaults defaults;
  defaults.vocab = 4096;
  defaults.sampling.seed = 11;
  return defaults;
}

BatchLine Parse(const std::string& text) { return ParseBatchLine(3, text, Defaults()); }

// A line whose body has the given fields beside its prompt.
BatchLine ParseBody(const std::string& fields) {
  return Parse(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x",)" + fields + "}}");
}

TEST(BatchLine, ReadsAWholeRequest) {
  const BatchLine line = Parse(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{
          "model":"m","prompt":"Once","max_tokens":7,
          "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":0.25,"frequency_penalty":0.5,
          "repetition_penalty":1.25,"repeat_last_n":-1,"seed":5,"stop":["\n","END"],"logprobs":3,
          "logit_bias":{"17":-100,"4095":2},"ignore_eos":true,"n":1,"best_of":1,"echo":false,"stream":false,"user":"u"}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_EQ(line.number, 3);
  EXPECT_EQ(line.custom_id, "a");
  EXPECT_EQ(line.request.model, "m");
  EXPECT_EQ(line.request.text, "Once");
  EXPECT_EQ(line.request.max_new_tokens, 7);
  EXPECT_THAT(line.request.stops, ElementsAre("\n", "END"));
  EXPECT_TRUE(line.request.ignore_eos);
  SamplingParams expected;
  expected.temperature = 0.5f;
  expected.top_p = 0.9f;
  expected.top_k = 40;
  expected.min_p = 0.1f;
  expected.presence_penalty = 0.25f;
  expected.frequency_penalty = 0.5f;
  expected.repeat_penalty = 1.25f;
  expected.repeat_last_n = -1;
  expected.seed = 5;
  expected.logprobs = 3;
  expected.logit_bias = {{17, -100.0f}, {4095, 2.0f}};
  EXPECT_EQ(line.request.sampling, expected);
}

TEST(BatchLine, UsesTheDefaultsForWhatIsAbsentOrNull) {
  const BatchLine line =
      ParseBody(R"("max_tokens":null,"temperature":null,"stop":null,"logprobs":null,"n":null,"stream":null)");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_EQ(line.request.max_new_tokens, 256);
  EXPECT_EQ(line.request.sampling, Defaults().sampling);
}

TEST(BatchLine, TakesTokenIdsAndAStopString) {
  const BatchLine line = Parse(R"({"custom_id":"a","body":{"prompt":[1,2,4095],"stop":"x"}})");
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_FALSE(line.request.text.has_value());
  EXPECT_THAT(line.request.tokens, ElementsAre(1, 2, 4095));
  EXPECT_THAT(line.request.stops, ElementsAre("x"));
}

TEST(BatchLine, TakesSeedsOf64Bits) {
  EXPECT_EQ(ParseBody(R"("seed":18446744073709551615)").request.sampling.seed, 18446744073709551615u);
}

TEST(BatchLine, SaysWhatIsNoJson) {
  EXPECT_EQ(Parse("{\"custom_id\":").error->code, "invalid_json");
  EXPECT_EQ(Parse("[1]").error->code, "invalid_json");
  EXPECT_EQ(Parse("{\"custom_id\":\"\xff\"}").error->code, "invalid_json");
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
  for (const BadBody& bad : std::initializer_list<BadBody>{
           {R"("n":2)", "'n': 2 answers to a prompt are not supported"},
           {R"("best_of":3)", "'best_of'"},
           {R"("echo":true)", "'echo': is not supported"},
           {R"("stream":true)", "'stream': is not supported"},
           {R"("suffix":"x")", "'suffix': is not supported"},
           {R"("max_token":5)", "'max_token': is no field that is known here"},
           {R"("temperature":-1)", "'temperature': -1 is out of range, expected 0 to 100"},
           {R"("temperature":"hot")", "'temperature': expected a number, found string"},
           {R"("temperature":1e999)", ""},
           {R"("top_p":0)", "'top_p': 0 is out of range"},
           {R"("top_p":1e-60)", "'top_p': 0 is out of range"},
           {R"("logit_bias":{"1":1e39})", "'logit_bias': 1e+39 is out of range"},
           {R"("top_p":1.5)", "'top_p': 1.5 is out of range"},
           {R"("top_k":-1)", "'top_k': -1 is out of range"},
           {R"("top_k":1.5)", "'top_k': expected an integer, found number"},
           {R"("min_p":2)", "'min_p': 2 is out of range"},
           {R"("repeat_penalty":0)", "'repeat_penalty': 0 is out of range"},
           {R"("repeat_penalty":1,"repetition_penalty":1)", "'repeat_penalty': is the same as 'repetition_penalty'"},
           {R"("max_tokens":0)", "'max_tokens': 0 is out of range"},
           {R"("max_tokens":18446744073709551615)", "'max_tokens': 18446744073709551615 is out of range"},
           {R"("seed":-1)", "'seed': expected an integer from 0"},
           {R"("logprobs":129)", "'logprobs': 129 is out of range, expected 0 to 128"},
           {R"("logprobs":true)", "'logprobs': expected an integer, found boolean"},
           {R"("stop":[1])", "'stop': expected a string or a list of strings"},
           {R"("logit_bias":{"x":1})", "'logit_bias': 'x' is no token id, expected 0 to 4095"},
           {R"("logit_bias":{"4096":1})", "'logit_bias': '4096' is no token id"},
           {R"("logit_bias":[1])", "'logit_bias': expected an object, found array"},
           {R"("ignore_eos":1)", "'ignore_eos': expected true or false"},
           {R"("model":7)", "'model': expected a string"}}) {
    const BatchLine line = ParseBody(bad.fields);
    ASSERT_TRUE(line.error.has_value()) << bad.fields;
    EXPECT_THAT(line.error->message, HasSubstr(bad.message)) << bad.fields;
  }
}

TEST(BatchLine, NamesADeeplyNestedValueWithoutDescendingIntoIt) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  const BatchLine line = ParseBatchLine(1, R"({"custom_id":"a","body":{"prompt":"x","n":)" + deep + "}}", Defaults());
  ASSERT_TRUE(line.error.has_value());
  EXPECT_THAT(line.error->message, HasSubstr("'n'"));
}

TEST(BatchLine, RefusesPromptsThatAreNotOnePrompt) {
  for (const char* prompt :
       {R"([])", R"(["a","b"])", R"([1,"a"])", R"([4096])", R"([-1])", R"(5)", R"([[1,2]])", R"({})"}) {
    const BatchLine line = Parse(std::string(R"({"custom_id":"a","body":{"prompt":)") + prompt + "}}");
    ASSERT_TRUE(line.error.has_value()) << prompt;
    EXPECT_THAT(line.error->message, HasSubstr("'prompt'")) << prompt;
  }
  EXPECT_THAT(Parse(R"({"custom_id":"a","body":{}})").error->message, HasSubstr("'prompt': is missing"));
  EXPECT_THAT(Parse(R"({"custom_id":"a"})").error->message, HasSubstr("'body': is missing"));
}

TEST(BatchLine, RefusesOtherMethodsAndPlaces) {
  EXPECT_THAT(Parse(R"({"custom_id":"a","method":"GET","body":{"prompt":"x"}})").error->message, HasSubstr("'method'"));
  EXPECT_THAT(Parse(R"({"custom_id":"a","url":"/v1/chat/completions","body":{"prompt":"x"}})").error->message,
              HasSubstr("'url'"));
}

}  // namespace
}  // namespace stagecoach
