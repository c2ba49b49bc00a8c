#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/step/sampling.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach::testing {
namespace {

GenerationRequest RequestOf(const PreparedCall& prepared) {
  EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
  return prepared.error.has_value() ? GenerationRequest() : prepared.call->TakeRequests().front();
}

using Fields = ToyServiceTest;

TEST_F(Fields, AreReadInBothApis) {
  const std::string fields =
      R"("model":"anything","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"presence_penalty":0.25,)"
      R"("frequency_penalty":-0.5,"repetition_penalty":1.25,"repeat_last_n":-1,"seed":5,"stop":["\n","END"],)"
      R"("logit_bias":{"17":-100,"263":2},"max_tokens":7,"min_tokens":0,"ignore_eos":false,"n":1,"user":"u")";
  SamplingParams expected;
  expected.temperature = 0.5f;
  expected.top_p = 0.9f;
  expected.top_k = 40;
  expected.min_p = 0.1f;
  expected.presence_penalty = 0.25f;
  expected.frequency_penalty = -0.5f;
  expected.repeat_penalty = 1.25f;
  expected.repeat_last_n = -1;
  expected.seed = 5;
  expected.logit_bias = {{17, -100.0f}, {263, 2.0f}};
  for (const bool chat : {false, true}) {
    const PreparedCall prepared = chat ? service.Chat(fields) : service.Complete(fields);
    const GenerationRequest request = RequestOf(prepared);
    EXPECT_EQ(request.sampling, expected);
    EXPECT_EQ(request.max_new_tokens, 7);
    EXPECT_THAT(request.stop_tokens, ElementsAre(kImEnd));
    EXPECT_EQ(request.score_from, -1);
    EXPECT_THAT(prepared.call->ignored(), ElementsAre("user"));
  }
}

// Of a field: a value that is taken, and values that are not, with what the message says.
struct FieldCase {
  const char* field;
  std::vector<const char*> right;
  std::vector<std::pair<const char*, const char*>> wrong;
};

std::vector<FieldCase> CommonFields() {
  return {
      {"model", {R"("")", R"("toy")", R"("other")"}, {{"7", "expected a string, found number"}}},
      {"temperature",
       {"0", "2", "1.5"},
       {{"2.5", "2.5 is out of range, expected 0 to 2"}, {"-1", "expected 0 to 2"}, {R"("hot")", "expected a number"}}},
      {"top_p",
       {"1", "0.001"},
       {{"0", "0 is out of range, expected more than 0 and up to 1"}, {"1e-60", "is out of range"}, {"1.1", "range"}}},
      {"top_k", {"-1", "0", "40"}, {{"-2", "is out of range"}, {"1.5", "expected an integer"}, {"true", "integer"}}},
      {"min_p", {"0", "1"}, {{"2", "expected 0 to 1"}, {"[]", "expected a number, found array"}}},
      {"frequency_penalty", {"-2", "2"}, {{"2.1", "expected -2 to 2"}, {"{}", "expected a number"}}},
      {"presence_penalty", {"-2", "2"}, {{"-2.1", "expected -2 to 2"}, {"false", "expected a number"}}},
      {"repetition_penalty", {"1", "100"}, {{"0", "expected more than 0 and up to 100"}, {"101", "range"}}},
      {"repeat_penalty", {"0.5"}, {{"-1", "range"}, {"0", "0 is out of range"}}},
      {"repeat_last_n", {"-1", "0"}, {{"-2", "range"}, {R"("all")", "expected an integer, found string"}}},
      {"seed",
       {"-1", "0", "18446744073709551615", "-9223372036854775808"},
       {{"1.5", "expected an integer from 0"}, {R"("5")", "expected an integer"}}},
      {"stop",
       {R"("x")", "[]", R"(["a","b"])"},
       {{R"("")", "a string of 0 bytes, expected 1 to 256"},
        {R"([1])", "expected a string or a list of strings, found number"},
        {"7", "expected a string or a list of strings"}}},
      {"stop_token_ids",
       {"[]", "[0,263]"},
       {{"[264]", "264 is out of range, expected 0 to 263"}, {"7", "expected a list"}, {R"(["a"])", "an integer"}}},
      {"min_tokens", {"0", "16"}, {{"-1", "range"}, {R"("1")", "expected an integer"}}},
      {"return_progress", {"true"}, {{"1", "expected true or false"}}},
      {"timings", {"true", "false"}, {{"1", "expected true or false"}}},
      {"ignore_eos", {"true", "false"}, {{"1", "expected true or false, found number"}}},
      {"include_stop_str_in_output", {"true"}, {{R"("yes")", "expected true or false"}}},
      {"skip_special_tokens", {"true", "false"}, {{"0", "expected true or false, found number"}}},
      {"logit_bias",
       {"{}", R"({"0":100,"263":-100})"},
       {{R"({"264":1})", "'264' is no token id, expected 0 to 263"},
        {R"({"+1":1})", "'+1' is no token id"},
        {R"({"x":1})", "'x' is no token id"},
        {R"({"01":1})", "'01' is no token id"},
        {R"({"":1})", "is no token id"},
        {R"({"1":101})", "expected -100 to 100"},
        {R"({"1":"a"})", "expected a number"},
        {"[1]", "expected an object, found array"}}},
      {"n", {"1", "4"}, {{"0", "expected 1 to 4"}, {"5", "expected 1 to 4"}, {R"("2")", "expected an integer"}}},
      {"best_of", {"1"}, {{"2", "expected as many as n: 1"}, {"0", "range"}}},
      {"stream", {"true", "false"}, {{"1", "expected true or false"}}},
      {"stream_options", {}, {{"{}", "without 'stream': true"}, {"7", "expected an object"}}},
      {"response_format",
       {R"({"type":"text"})", R"({"type":"json_object"})"},
       {{R"({"type":"xml"})", "expected a type of"}, {R"("json")", "expected an object"}}},
      {"structured_outputs", {R"({"regex":"a"})"}, {{"[]", "expected an object"}}},
      {"grammar", {R"("root ::= \"a\"")"}, {{"{}", "expected a string"}}},
      {"use_beam_search", {"false"}, {{"true", "is not supported"}}},
      {"prompt_logprobs", {}, {{"1", "echo and logprobs"}}},
      {"chat_template", {}, {{R"("{{ x }}")", "templates in requests are refused"}}},
      {"functions", {"[]"}, {{R"([{"name":"f"}])", "is the old form of tools; send"}}},
      {"function_call", {R"("none")"}, {{R"("auto")", "send 'tool_choice'"}}},
      {"web_search_options", {}, {{"{}", "is not supported"}}},
      {"modalities", {R"(["text"])"}, {{R"(["text","audio"])", "text only"}}},
      {"audio", {}, {{R"({"voice":"a"})", "text only"}}},
      {"priority", {"0", "2"}, {{"3", "expected 0 to 2"}, {R"("high")", "expected an integer"}}},
      {"timeout_s", {"0.5", "60"}, {{"0", "is out of range"}, {R"("1")", "expected a number"}}},
      {"cache_salt", {R"("a")"}, {{"1", "expected a string"}}},
      {"max_tokens",
       {"1", "2147483647"},
       {{"0", "0 is out of range"}, {"-1", "range"}, {"18446744073709551615", "is out of range"}}},
  };
}

// Every field that is a count, with a value in its range above 1 and whether the range begins at 0 or above.
struct CountField {
  const char* field;
  int in_range;
  bool from_zero = true;
};

std::vector<CountField> CountFields(bool chat) {
  std::vector<CountField> fields = {{"top_k", 40, false}, {"repeat_last_n", 16, false},
                                    {"min_tokens", 2},    {"n", 4},
                                    {"priority", 2},      {"max_tokens", 4}};
  if (chat) {
    fields.push_back({"max_completion_tokens", 4});
    fields.push_back({"top_logprobs", 2});
  } else {
    fields.push_back({"logprobs", 3});
  }
  return fields;
}

void CheckFields(const ToyService& service, const std::vector<FieldCase>& cases,
                 PreparedCall (ToyService::*prepare)(const std::string&) const) {
  for (const FieldCase& field : cases) {
    const std::string start = absl::StrCat("\"", field.field, "\":");
    EXPECT_FALSE((service.*prepare)(start + "null").error.has_value()) << field.field << ": null is absent";
    for (const char* value : field.right) {
      const PreparedCall prepared = (service.*prepare)(start + value);
      EXPECT_FALSE(prepared.error.has_value()) << field.field << ": " << value << ": " << prepared.error->message;
    }
    for (const auto& [value, message] : field.wrong) {
      const PreparedCall prepared = (service.*prepare)(start + value);
      ASSERT_TRUE(prepared.error.has_value()) << field.field << ": " << value;
      EXPECT_EQ(prepared.call, nullptr);
      EXPECT_EQ(prepared.error->status, 400);
      EXPECT_EQ(prepared.error->type, "invalid_request_error");
      EXPECT_THAT(prepared.error->message, HasSubstr(message)) << field.field << ": " << value;
      EXPECT_THAT(prepared.error->message, HasSubstr(field.field)) << "the field is named";
      EXPECT_THAT(prepared.error->param.value(), HasSubstr(field.field));
    }
  }
}

ToyService WithFourChoices() {
  ToyService service;
  service.context.max_choices = 4;
  return service;
}

TEST_F(Fields, OfPromptsAreCheckedOneByOne) {
  const ToyService service = WithFourChoices();
  CheckFields(service, CommonFields(), &ToyService::Complete);
  CheckFields(service,
              {{"logprobs", {"0", "5"}, {{"6", "expected 0 to 5"}, {"true", "expected an integer, found boolean"}}},
               {"echo", {"true", "false"}, {{"1", "expected true or false"}}},
               {"suffix", {R"("")"}, {{R"("x")", "has no tokens for fill-in-the-middle"}, {"1", "expected a string"}}},
               {"add_special_tokens", {"true", "false"}, {{"0", "expected true or false"}}},
               {"parse_special", {"true", "false"}, {{"0", "expected true or false"}}}},
              &ToyService::Complete);
}

TEST_F(Fields, AnEchoedPromptHasARangeOfLogprobsOfItsOwn) {
  ToyService service = WithFourChoices();
  const auto error = [&service](const std::string& fields) {
    const PreparedCall prepared = service.Complete(R"("echo":true,)" + fields);
    EXPECT_TRUE(prepared.error.has_value()) << fields;
    return prepared.error.has_value() ? prepared.error->message : "";
  };
  EXPECT_FALSE(service.Complete(R"("echo":true,"logprobs":20)").error.has_value());
  EXPECT_THAT(error(R"("logprobs":21)"), HasSubstr("expected 0 to 20"));
  // What an answer holds until it is whole is bounded.
  service.context.context_tokens = 1 << 20;
  std::string prompt;
  for (int i = 0; i < 1 << 16; ++i) prompt += i == 0 ? "72" : ",72";
  const auto asked = [&](const std::string& fields) {
    return service.Prepare(kCompletionsApi, R"({"echo":true,"max_tokens":0,"prompt":[)" + prompt + "]," + fields);
  };
  EXPECT_FALSE(asked(R"("logprobs":12})").error.has_value());
  EXPECT_FALSE(asked(R"("logprobs":0,"n":4})").error.has_value());
  EXPECT_TRUE(asked(R"("logprobs":1,"n":4})").error.has_value());
  ASSERT_TRUE(asked(R"("logprobs":12,"n":2})").error.has_value());
  EXPECT_EQ(
      asked(R"("logprobs":20})").error->message,
      "'prompt': with 'echo' has 65536 tokens in all, each with 'logprobs' 20, expected at most 43690 tokens; send "
      "fewer prompts at once, or a smaller 'n'");
  service.context.max_choices = 2000;
  ASSERT_TRUE(asked(R"("n":1025})").error.has_value());
  EXPECT_THAT(asked(R"("n":1025})").error->message, HasSubstr("puts 67174400 bytes before the answers"));
}

TEST_F(Fields, OfConversationsAreCheckedOneByOne) {
  const ToyService service = WithFourChoices();
  CheckFields(service, CommonFields(), &ToyService::Chat);
  CheckFields(
      service,
      {{"max_completion_tokens", {"1"}, {{"0", "range"}, {R"("5")", "expected an integer"}}},
       {"logprobs", {"true", "false"}, {{"1", "expected true or false"}}},
       {"top_logprobs", {"0"}, {{"3", "without 'logprobs': true"}, {"21", "expected 0 to 20"}}},
       {"suffix", {R"("")"}, {{R"("x")", "is a field of /v1/completions"}}},
       {"reasoning_effort", {R"("none")", R"("low")", R"("xhigh")"}, {{R"("some")", "expected none, minimal"}}},
       {"chat_template_kwargs",
        {"{}", R"({"enable_thinking":false,"a":[1]})"},
        {{"[]", "expected an object"}, {R"({"messages":[]})", "messages"}}},
       {"continue_final_message", {"false"}, {{"1", "expected true or false"}}},
       {"prediction",
        {R"({"type":"content","content":"x"})", R"({"type":"content","content":[{"type":"text","text":"x"}]})"},
        {{R"("x")", "'prediction': expected an object with type and content, found string"},
         {R"({"content":"x"})", "prediction.type: is missing"},
         {R"({"type":"diff","content":"x"})", R"(prediction.type: expected content, found "diff")"},
         {R"({"type":"content"})", "prediction.content: is missing"},
         {R"({"type":"content","content":7})",
          "prediction.content: expected a string or a list of parts, found number"},
         {R"({"type":"content","content":["x"]})", "prediction.content[0]: expected an object with type and text"},
         {R"({"type":"content","content":[{"type":"image_url"}]})", "prediction.content[0].type: expected text"},
         {R"({"type":"content","content":[{"type":"text"}]})", "prediction.content[0].text: is missing"}}},
       {"tools", {"[]"}, {{"{}", "expected a list"}}},
       {"tool_choice", {R"("auto")", R"("none")"}, {{R"("required")", "there are no tools"}, {"7", "expected"}}},
       {"parallel_tool_calls", {"true", "false"}, {{"0", "expected true or false"}}}},
      &ToyService::Chat);
}

TEST_F(Fields, ThatAreCountsAreTakenHoweverClientsWriteAnInteger) {
  const ToyService service = WithFourChoices();
  for (const bool chat : {false, true}) {
    const auto prepare = [&](const std::string& field, const std::string& value) {
      const std::string with = field == "top_logprobs" ? R"("logprobs":true,)" : "";
      const std::string fields = absl::StrCat(with, "\"", field, "\":", value);
      return chat ? service.Chat(fields) : service.Complete(fields);
    };
    for (const auto& [field, in_range, from_zero] : CountFields(chat)) {
      for (const char* form : {"%d", "%d.0", "%de0", "%d.000", "%d0e-1"}) {
        const std::string value = absl::StrFormat(*absl::ParsedFormat<'d'>::New(form), in_range);
        const PreparedCall prepared = prepare(field, value);
        EXPECT_FALSE(prepared.error.has_value()) << field << ": " << value << ": " << prepared.error->message;
      }
      std::vector<std::string> wrongs = {
          "1e300", "-1e300", "18446744073709551616", "9007199254740993.0", "2.5", absl::StrCat("\"", in_range, "\""),
          "true",  "[1]"};
      if (from_zero) wrongs.insert(wrongs.end(), {"-0", "-0.0", "-0e5"});
      for (const std::string& value : wrongs) {
        const PreparedCall prepared = prepare(field, value);
        EXPECT_EQ(prepared.error.value().status, 400) << field << ": " << value;
        EXPECT_EQ(prepared.error->param, field) << value;
        EXPECT_THAT(prepared.error->message, HasSubstr(absl::StrCat("'", field, "': "))) << value;
      }
    }
  }
  EXPECT_EQ(RequestOf(service.Complete(R"("max_tokens":2e1,"top_k":4.0)")).max_new_tokens, 20);
  EXPECT_EQ(service.Complete(R"("max_tokens":1e300)").error->message,
            "'max_tokens': 1e+300 is out of range, expected 1 to 2147483647");
  EXPECT_EQ(service.Complete(R"("min_tokens":-0)").error->message,
            "'min_tokens': -0 is out of range, expected 0 to 2147483647");
  EXPECT_EQ(service.Complete(R"("max_tokens":2.5)").error->message, "'max_tokens': expected an integer, found 2.5");
}

TEST_F(Fields, OutsideOfWhatAnyNumberCanBeAreNamedToo) {
  for (const char* field : {"max_tokens", "temperature"}) {
    const PreparedCall prepared = service.Complete(absl::StrCat("\"a\":{\"b\":1},\"", field, "\":1e400"));
    EXPECT_EQ(prepared.error->code, "invalid_json");
    EXPECT_THAT(prepared.error->message, HasSubstr(absl::StrCat("for \"", field, "\", found 1e400")));
  }
}

TEST_F(Fields, ThatAreNoCountsTakeIntegersOfEveryFormToo) {
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":7.0)")).sampling.seed, 7u);
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":-0.0)")).sampling.seed, 0u);
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":-1.0)")).sampling.seed, 11u) << "the drawn one";
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":-2.0)")).sampling.seed, 18446744073709551614u);
  for (const char* seed : {"1e300", "9007199254740993.0", "0.5", R"("7")"}) {
    EXPECT_EQ(service.Complete(absl::StrCat("\"seed\":", seed)).error->param, "seed") << seed;
  }
  const float temperature = RequestOf(service.Complete(R"("temperature":-0.0)")).sampling.temperature;
  EXPECT_TRUE(temperature == 0 && !std::signbit(temperature));
  EXPECT_THAT(RequestOf(service.Complete(R"("stop_token_ids":[17.0])")).stop_tokens, ElementsAre(kImEnd, 17));
  EXPECT_THAT(RequestOf(service.Prepare(kCompletionsApi, R"({"prompt":[72.0,1.05e2]})")).prompt, ElementsAre(72, 105));
  EXPECT_EQ(service.Prepare(kCompletionsApi, R"({"prompt":[-0]})").error->param, "prompt");
}

TEST_F(Fields, HaveTheServersDefaults) {
  service.model.sampling.temperature = 0.7f;
  service.model.sampling.top_k = 20;
  const GenerationRequest completion = RequestOf(service.Complete(R"("temperature":null)"));
  EXPECT_EQ(completion.sampling.temperature, 0.7f);
  EXPECT_EQ(completion.sampling.top_k, 20);
  EXPECT_EQ(completion.sampling.seed, 11u) << "the drawn one";
  EXPECT_EQ(completion.sampling.logprobs, -1);
  EXPECT_EQ(completion.max_new_tokens, 16);
  EXPECT_EQ(RequestOf(service.Complete(R"("top_k":-1)")).sampling.top_k, 0) << "off";
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":-1)")).sampling.seed, 11u);
  EXPECT_EQ(RequestOf(service.Complete(R"("seed":-2)")).sampling.seed, 18446744073709551614u);
  EXPECT_EQ(RequestOf(service.Chat("")).max_new_tokens, 100 - 21) << "the room left";
}

TEST_F(Fields, CutTheAnswerToTheRoomThatIsThere) {
  EXPECT_EQ(RequestOf(service.Chat(R"("max_tokens":32000)")).max_new_tokens, 79);
  EXPECT_EQ(RequestOf(service.Chat(R"("max_tokens":50,"max_completion_tokens":9)")).max_new_tokens, 9);
  EXPECT_EQ(RequestOf(service.Complete(R"("max_tokens":32000)")).max_new_tokens, 98);
  service.context.context_tokens = 0;
  EXPECT_EQ(RequestOf(service.Complete(R"("max_tokens":32000)")).max_new_tokens, 32000) << "the engine judges";
}

TEST_F(Fields, HoldTheEndBackForSoManyTokens) {
  EXPECT_EQ(RequestOf(service.Complete(R"("min_tokens":5)")).min_new_tokens, 5);
  EXPECT_EQ(RequestOf(service.Chat(R"("min_tokens":500)")).min_new_tokens, 79) << "no more than there is room for";
  EXPECT_THAT(service.Complete(R"("min_tokens":6,"max_tokens":5)").error->message,
              HasSubstr("'min_tokens': 6 are more than the 5 tokens"));
  EXPECT_EQ(RequestOf(service.Complete(R"("cache_salt":"mine")")).cache_salt, "mine");
}

TEST_F(Fields, SayHowMuchTooLongAPromptIs) {
  service.context.context_tokens = 21;
  const PreparedCall chat = service.Chat("");
  EXPECT_EQ(chat.error.value().code, "context_length_exceeded") << "a prompt as long as the context leaves no room";
  EXPECT_EQ(chat.error->message, "prompt is too long: 21 tokens > 20 maximum");
  service.context.context_tokens = 2;
  EXPECT_EQ(service.Complete("").error->message, "prompt is too long: 2 tokens > 1 maximum");
  EXPECT_FALSE(service.Complete(R"("echo":true,"max_tokens":0)").error.has_value()) << "nothing follows";
}

TEST_F(Fields, SayThatAPromptIsFarTooLongWithoutCountingAllOfIt) {
  const std::string text(size_t{1} << 20, 'a');
  for (const PreparedCall& prepared :
       {service.Prepare(kChatApi, absl::StrCat(R"({"messages":[{"role":"user","content":")", text, R"("}]})")),
        service.Prepare(kCompletionsApi, absl::StrCat(R"({"prompt":["Hi",")", text, R"("]})"))}) {
    EXPECT_EQ(prepared.error.value().code, "context_length_exceeded");
    EXPECT_EQ(prepared.error->message, "prompt is too long: 199 tokens > 99 maximum, and more that were not counted");
  }
  const std::string twice(198, 'a');
  EXPECT_EQ(service.Prepare(kCompletionsApi, absl::StrCat(R"({"prompt":")", twice, R"("})")).error->message,
            "prompt is too long: 198 tokens > 99 maximum");
  service.context.context_tokens = 0;
  EXPECT_FALSE(service.Prepare(kCompletionsApi, absl::StrCat(R"({"prompt":")", twice, R"("})")).error.has_value());
}

TEST_F(Fields, PutNobodyBeforeTheClassOfItsKey) {
  const auto priority_of = [this](const std::string& fields) {
    return static_cast<int>(RequestOf(service.Complete(fields)).priority_class);
  };
  EXPECT_EQ(priority_of(""), 1);
  EXPECT_EQ(priority_of(R"("priority":0)"), 0) << "without keys everybody may";
  EXPECT_EQ(priority_of(R"("priority":2)"), 2);
  service.context.priority_class = service.context.first_class = 1;
  EXPECT_THAT(service.Chat(R"("priority":0)").error->message,
              HasSubstr("'priority': 0 is out of range, expected 1 to 2"));
  EXPECT_EQ(priority_of(R"("priority":2)"), 2);
  service.context.priority_class = service.context.first_class = 2;
  EXPECT_EQ(priority_of(""), 2);
  service.context.priority_class = service.context.first_class = 0;
  EXPECT_EQ(priority_of(R"("priority":1)"), 1);
}

TEST_F(Fields, OfOneMeaningAreNotBothTaken) {
  EXPECT_THAT(service.Complete(R"("repeat_penalty":1,"repetition_penalty":1)").error->message,
              HasSubstr("is the same as 'repetition_penalty'"));
}

TEST_F(Fields, ThatCannotBeHonouredAreCalledSo) {
  for (const char* fields : {R"("min_p":0,"suffix":"x")", R"("best_of":2)", R"("use_beam_search":true)"}) {
    EXPECT_EQ(service.Complete(fields).error->code, "unsupported_parameter") << fields;
  }
  EXPECT_EQ(service.Complete(R"("top_p":7)").error->code, "invalid_value");
  EXPECT_EQ(service.Prepare(kCompletionsApi, "{}").error->code, "missing_parameter");
  EXPECT_EQ(service.Prepare(kChatApi, "{}").error->param, "messages");
}

TEST_F(Fields, ThatNobodyKnowsAreIgnoredAndNamed) {
  const PreparedCall prepared = service.Complete(
      R"("user":"u","metadata":{},"store":true,"verbosity":"low","new_thing":1,"nothing":null,"priority":1,"a":[],)"
      R"("suffix":"","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true,"x":null})");
  ASSERT_FALSE(prepared.error.has_value());
  EXPECT_THAT(prepared.call->ignored(), ElementsAre("stream_options.continuous_usage_stats", "user", "metadata",
                                                    "store", "verbosity", "new_thing", "a"));
  EXPECT_EQ(IgnoredHeader({"new_thing", "stream_options.a"}), "new_thing, stream_options.a");
  EXPECT_EQ(IgnoredHeader({"a\r\nb: c", "", "ok", "na me"}), "ok");
  EXPECT_LE(IgnoredHeader(std::vector<std::string>(500, "a_name")).size(), 1024u);
}

TEST_F(Fields, NameTheModelsThatAreServed) {
  service.model.names = {"first", "second"};
  EXPECT_THAT(Answer(service.Complete(R"("model":"other")").call.get(), {}, pb::RequestFinished::REASON_LENGTH),
              HasSubstr(R"("model":"first")"));
  EXPECT_THAT(Answer(service.Complete(R"("model":"second")").call.get(), {}, pb::RequestFinished::REASON_LENGTH),
              HasSubstr(R"("model":"second")"));
  service.model.any_name = false;
  const PreparedCall other = service.Complete(R"("model":"other")");
  EXPECT_EQ(other.error->status, 404);
  EXPECT_EQ(other.error->code, "model_not_found");
  EXPECT_FALSE(service.Complete(R"("model":"")").error.has_value()) << "the first";
  EXPECT_FALSE(service.Complete("").error.has_value());
}

TEST_F(Fields, MakeTheEndImpossibleWhereItIsIgnoredAndLeaveRoomForThat) {
  const GenerationRequest request = RequestOf(service.Complete(R"("ignore_eos":true)"));
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(Pair(kImEnd, -std::numeric_limits<float>::infinity())));
  EXPECT_THAT(request.stop_tokens, ElementsAre());
  service.model.vocab = 2000;
  std::string biases;
  for (int i = 0; i < kMaxLogitBias; ++i) absl::StrAppend(&biases, i > 0 ? "," : "", "\"", i, "\":1");
  EXPECT_FALSE(service.Complete(absl::StrCat(R"("logit_bias":{)", biases, "}")).error.has_value());
  EXPECT_THAT(service.Complete(absl::StrCat(R"("ignore_eos":true,"logit_bias":{)", biases, "}")).error->message,
              HasSubstr("expected at most 1023"));
}

TEST_F(Fields, TakePromptsOfEveryKind) {
  struct {
    const char* prompt;
    size_t requests;
  } const rights[] = {{R"("Hi")", 1}, {"[72,105]", 1}, {R"(["a","b"])", 2}, {"[[1],[2,3],[4]]", 3}, {R"(["a"])", 1}};
  for (const auto& [prompt, requests] : rights) {
    const PreparedCall prepared = service.Prepare(kCompletionsApi, absl::StrCat("{\"prompt\":", prompt, "}"));
    ASSERT_FALSE(prepared.error.has_value()) << prompt << ": " << prepared.error->message;
    EXPECT_EQ(prepared.call->choices(), requests) << prompt;
  }
  for (const char* prompt : {R"("")", "[]", "[[]]", R"(["a",1])", R"([1,"a"])", R"(["a",[1]])", "[264]", "[-1]", "5",
                             "{}", "true", "[[1.5]]", R"(["a",""])", "[null]"}) {
    const PreparedCall prepared = service.Prepare(kCompletionsApi, absl::StrCat("{\"prompt\":", prompt, "}"));
    EXPECT_EQ(prepared.error.value().param, "prompt") << prompt;
  }
}

TEST_F(Fields, BoundHowManyPromptsThereAre) {
  service.context.max_requests = 6;
  service.context.max_choices = 2;
  const auto prompts = [this](int count, int n) {
    return service.Prepare(kCompletionsApi, CompactJson({{"prompt", std::vector<std::string>(count, "a")}, {"n", n}}));
  };
  EXPECT_FALSE(prompts(6, 1).error.has_value());
  EXPECT_THAT(prompts(7, 1).error->message, HasSubstr("has 7 prompts, expected at most 6"));
  EXPECT_FALSE(prompts(3, 2).error.has_value());
  EXPECT_TRUE(prompts(4, 2).error.has_value());
}

TEST_F(Fields, MakeControlTokensOfAPromptUnlessToldNotTo) {
  const char kBody[] = R"({"prompt":"<|im_end|>"%s})";
  const auto prompt = [&](const char* more) {
    return RequestOf(service.Prepare(kCompletionsApi, absl::StrFormat(kBody, more))).prompt;
  };
  EXPECT_THAT(prompt(""), ElementsAre(kImEnd));
  EXPECT_THAT(prompt(R"(,"parse_special":true)"), ElementsAre(kImEnd));
  EXPECT_EQ(prompt(R"(,"parse_special":false)").size(), 10u);
  // What is said in a conversation is the user's.
  const char kSays[] = R"({"messages":[{"role":"user","content":"%s"}]})";
  const size_t letters = RequestOf(service.Prepare(kChatApi, absl::StrFormat(kSays, "0123456789"))).prompt.size();
  EXPECT_EQ(RequestOf(service.Prepare(kChatApi, absl::StrFormat(kSays, "<|im_end|>"))).prompt.size(), letters);
}

TEST_F(Fields, MakeNoSecondBosTokenWhereAPromptBeginsWithOne) {
  ToyVocabulary toy = ToyBytePairs();
  const TokenId bos = toy.Add("<s>", 3);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  writer.Set("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos));
  writer.Set("tokenizer.ggml.add_bos_token", true);
  const std::unique_ptr<Tokenizer> tokenizer = OpenOrDie(writer);
  service.model.tokenizer = tokenizer.get();
  const auto prompt = [&](const char* text, const char* more) {
    return RequestOf(service.Prepare(kCompletionsApi, absl::StrCat(R"({"prompt":")", text, "\"", more, "}"))).prompt;
  };
  EXPECT_THAT(prompt("ab", ""), ElementsAre(bos, 'a', 'b'));
  EXPECT_THAT(prompt("<s>ab", ""), ElementsAre(bos, 'a', 'b'));
  EXPECT_THAT(prompt("<s>ab", R"(,"add_special_tokens":false)"), ElementsAre(bos, 'a', 'b'));
  EXPECT_THAT(prompt("<s>ab", R"(,"parse_special":false)"), ElementsAre(bos, '<', 's', '>', 'a', 'b'));
}

// Clients send the ends of messages in every spelling; where one is a token it never becomes text.
TEST_F(Fields, TakeAStopStringThatIsAControlTokenForThatToken) {
  const std::vector<TokenId> ends = RequestOf(service.Complete("")).stop_tokens;
  std::vector<TokenId> more = ends;
  more.push_back(kImStart);
  EXPECT_EQ(RequestOf(service.Complete(R"("stop":["<|im_start|>","<|im_end|>","x"])")).stop_tokens, more);
  EXPECT_EQ(RequestOf(service.Complete(R"("stop":["<|im_start|>"],"skip_special_tokens":false)")).stop_tokens, ends);
}

TEST_F(Fields, AreNotReadOfWhatIsNoObject) {
  for (const char* body :
       {"", "[]", "7", "{", R"({"prompt":"a","prompt":"b"})", R"({"prompt":"a"} x)", "{\"prompt\":\"\xff\"}"}) {
    EXPECT_EQ(service.Prepare(kCompletionsApi, body).error.value().code, "invalid_json") << body;
  }
}

TEST_F(Fields, TellHowLongTheAnswerMayTake) {
  EXPECT_EQ(service.Complete(R"("timeout_s":1.5)").call->timeout(), absl::Seconds(1.5));
  EXPECT_EQ(service.Complete("").call->timeout(), std::nullopt);
}

// Bodies that were right, with bytes changed, cut, doubled: whatever comes of it, it is an answer or an error.
TEST_F(Fields, SurviveWhateverABodyIs) {
  ToyService service = WithFourChoices();
  const std::vector<std::pair<const ApiDialect*, std::string>> bodies = {
      {&kChatApi,
       R"({"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},)"
       R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
       R"({"role":"tool","tool_call_id":"1","content":"c"}],"tools":[],"tool_choice":"auto","stop":["x"],"n":2,)"
       R"("logprobs":true,"top_logprobs":2,"reasoning_effort":"low","chat_template_kwargs":{"a":1},"stream":true,)"
       R"("stream_options":{"include_usage":true},"logit_bias":{"1":2},"seed":7,"max_tokens":9,"ignore_eos":true})"},
      {&kCompletionsApi,
       R"({"model":"m","prompt":["ab","c"],"echo":true,"logprobs":2,"n":2,"best_of":2,"temperature":0.5,"top_k":-1,)"
       R"("stop":"z","stop_token_ids":[1,2],"ignore_eos":false,"response_format":{"type":"json_object"},"timeout_s":3})"}};
  const std::string alphabet = "{}[]\",:0123456789-+.eEntrufalsx\\ \xC3\xA9\x80";
  std::mt19937 random(7);
  int right = 0;
  for (int round = 0; round < 6000; ++round) {
    const auto& [api, whole] = bodies[random() % bodies.size()];
    std::string body = whole;
    for (uint32_t change = random() % 4; change != UINT32_MAX; --change) {
      const size_t at = random() % body.size(), length = 1 + random() % 12;
      switch (random() % 4) {
        case 0: body[at] = alphabet[random() % alphabet.size()]; break;
        case 1: body.erase(at, length); break;
        case 2: body.insert(at, body.substr(random() % body.size(), length)); break;
        default: body.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
      if (body.empty()) body = "{";
    }
    const PreparedCall prepared = service.Prepare(*api, body);
    ASSERT_NE(prepared.call == nullptr, !prepared.error.has_value()) << body;
    if (prepared.call == nullptr) {
      ASSERT_TRUE(Json::accept(ErrorBody(*prepared.error)));
      continue;
    }
    ++right;
    for (const GenerationRequest& request : prepared.call->TakeRequests()) ASSERT_FALSE(request.prompt.empty());
    Answer(prepared.call.get(), {'a', 0xC3, 'z'}, pb::RequestFinished::REASON_LENGTH);
  }
  EXPECT_GT(right, 50) << "some changes leave a body right";
}

}  // namespace
}  // namespace stagecoach::testing
