// What bodies ask of an answer's form, and which texts the grammar that comes of it takes.

#include "coordinator/serve/api/bound_answer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/grammar/matcher.h"
#include "common/text/token_bytes.h"
#include "coordinator/serve/api/batch_line.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach::testing {
namespace {

constexpr char kSchema[] = R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})";
const std::vector<std::string> kValues = {R"({"n": 1})", R"({"n":"1"})", "{}", "[1]", "one"};

// Functions look(where), whose arguments are to follow the schema if `strict`, and stop.
std::string Tools(bool strict = false, bool flat = false) {
  const std::string look =
      absl::StrCat(R"("name":"look","strict":)", strict ? "true" : "false",
                   R"(,"parameters":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})");
  if (flat) return absl::StrCat(R"("tools":[{"type":"function",)", look, R"(},{"type":"function","name":"stop"}])");
  return absl::StrCat(R"("tools":[{"type":"function","function":{)", look,
                      R"(}},{"type":"function","function":{"name":"stop"}}])");
}

std::string CallOf(const std::string& name, const std::string& arguments) {
  return absl::StrCat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": ", arguments, "}\n</tool_call>");
}
const std::string kLook = CallOf("look", R"({"n": 1})"), kWrongLook = CallOf("look", R"({"n": "x"})");
const std::string kStop = CallOf("stop", "{}");

// A model that thinks and calls in the form of hermes_json.
struct BoundAnswer : ToyServiceTest {
  BoundAnswer()
      : format({.given = ChatTemplateSource{"tools", kToolTemplate}, .built_in = ""}, GgufMetadata(),
               service.tokenizer.get()),
        vocabulary(*MakeGrammarVocabulary(service.tokenizer->vocabulary(), kToyVocab)) {
    service.model.chat = &format;
    service.model.output_format = service.model.tool_format = OutputFormat::kHermesJson;
    service.context.context_tokens = 4000;
  }

  PreparedCall Ask(const ApiDialect& api, const std::string& fields) const {
    const bool completes = &api == &kCompletionsApi, responds = &api == &kResponsesApi;
    const char* what = completes  ? R"("prompt":"Hi")"
                       : responds ? R"("input":"Hi")"
                                  : R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":99)";
    return service.Prepare(api, absl::StrCat("{", what, fields.empty() ? "" : ",", fields, "}"));
  }
  PreparedCall Chat(const std::string& fields) const { return Ask(kChatApi, fields); }

  // Those of the texts that are whole answers by the grammar of the call's requests; without one all.
  std::vector<std::string> Taken(const PreparedCall& prepared, const std::vector<std::string>& texts) const {
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    if (prepared.error.has_value()) return {};
    const std::vector<GenerationRequest> requests = prepared.call->TakeRequests();
    if (requests[0].grammar == nullptr) return texts;
    for (const TokenId end : service.tokenizer->end_of_generation()) {
      EXPECT_THAT(requests[0].stop_tokens, ::testing::Contains(end)) << "the engine wants it so";
    }
    for (const GenerationRequest& request : requests) EXPECT_EQ(request.grammar, requests[0].grammar);
    const absl::StatusOr<GrammarProgram> program = GrammarProgram::Decode(*requests[0].grammar);
    EXPECT_EQ(program.status().ToString(), "OK");
    std::vector<std::string> taken;
    for (const std::string& text : texts) {
      GrammarMatcher matcher(*program, vocabulary);
      bool goes_on = true;
      for (const TokenId token : Bytes(text)) goes_on = goes_on && matcher.Append(token);
      if (goes_on && matcher.accepting()) taken.push_back(text);
    }
    return taken;
  }

  void ExpectRefused(const ApiDialect& api, const std::string& fields, const char* code, const char* param,
                     const char* message) const {
    const PreparedCall prepared = Ask(api, fields);
    ASSERT_TRUE(prepared.error.has_value()) << fields;
    EXPECT_EQ(prepared.error->status, 400) << fields;
    EXPECT_EQ(prepared.error->code, code) << fields << prepared.error->message;
    EXPECT_EQ(prepared.error->param.value_or(""), param) << fields << prepared.error->message;
    EXPECT_THAT(prepared.error->message, HasSubstr(message)) << fields;
    EXPECT_THAT(prepared.error->message, HasSubstr(param)) << fields;
  }

  ChatFormat format;
  std::shared_ptr<const GrammarVocabulary> vocabulary;
};

TEST_F(BoundAnswer, FollowsASchemaHoweverAnApiAsksForIt) {
  const std::string text = absl::StrReplaceAll(kSchema, {{"\"", "\\\""}});
  const char* const named = R"({"name":"a","description":"d","strict":true,"schema":SCHEMA})";
  struct {
    std::vector<const ApiDialect*> apis;
    std::string fields;
  } const cases[] = {
      {{&kChatApi, &kCompletionsApi},
       absl::StrCat(R"("response_format":{"type":"json_schema","json_schema":)", named, "}")},
      {{&kChatApi, &kCompletionsApi}, R"("response_format":{"type":"json_schema","schema":SCHEMA})"},
      {{&kChatApi, &kCompletionsApi}, R"("response_format":{"type":"json_object","schema":SCHEMA})"},
      {{&kChatApi, &kCompletionsApi}, R"("structured_outputs":{"json":SCHEMA})"},
      {{&kChatApi, &kCompletionsApi}, absl::StrCat(R"("structured_outputs":{"json":")", text, "\"}")},
      {{&kChatApi, &kCompletionsApi}, R"("json_schema":SCHEMA)"},
      {{&kChatApi, &kCompletionsApi}, R"("guided_json":SCHEMA)"},
      {{&kChatApi, &kCompletionsApi}, absl::StrCat(R"("guided_json":")", text, "\"")},
      {{&kResponsesApi}, R"("text":{"format":{"type":"json_schema","name":"a","strict":false,"schema":SCHEMA}})"},
      {{&kMessagesApi}, R"("output_config":{"format":{"type":"json_schema","schema":SCHEMA}})"},
      {{&kMessagesApi}, R"("output_format":{"type":"json_schema","schema":SCHEMA})"}};
  for (const auto& asked : cases) {
    const std::string fields = absl::StrReplaceAll(asked.fields, {{"SCHEMA", kSchema}});
    for (const ApiDialect* api : asked.apis) {
      EXPECT_THAT(Taken(Ask(*api, fields), kValues), ElementsAre(kValues[0])) << api->name << fields;
    }
  }
}

TEST_F(BoundAnswer, FollowsTheOtherFormsThatBodiesAskFor) {
  struct {
    const char* fields;
    std::vector<std::string> taken;
  } const cases[] = {
      {R"("response_format":{"type":"json_object"})", {R"({"n":"1"})", "{}"}},
      {R"("structured_outputs":{"json_object":true})", {R"({"n":"1"})", "{}"}},
      {R"("structured_outputs":{"regex":"[a-z]{3}|ab?"})", {"one", "a"}},
      {R"("structured_outputs":{"choice":["one","a, b"],"json_object":false})", {"one", "a, b"}},
      {R"("structured_outputs":{"grammar":"root ::= [a-z]+"})", {"one", "a"}},
      {R"("grammar":"root ::= [a-z]+")", {"one", "a"}},
      {R"("guided_regex":"[a-z]{3}|ab?")", {"one", "a"}},
      {R"("guided_choice":["one","a, b"],"guided_json":null)", {"one", "a, b"}},
      {R"("guided_grammar":"root ::= [a-z]+")", {"one", "a"}},
  };
  const std::vector<std::string> texts = {R"({"n":"1"})", "{}", "[1]", "one", "a", "a, b"};
  for (const auto& asked : cases) {
    for (const ApiDialect* api : {&kChatApi, &kCompletionsApi}) {
      EXPECT_THAT(Taken(Ask(*api, asked.fields), texts), ::testing::ElementsAreArray(asked.taken)) << asked.fields;
    }
  }
  EXPECT_THAT(Taken(Ask(kResponsesApi, R"("text":{"format":{"type":"json_object"}})"), texts),
              ElementsAre(R"({"n":"1"})", "{}"));
  EXPECT_THAT(Chat(R"("structured_outputs":{"regex":"a","whitespace_pattern":"x"})").call->ignored(),
              ElementsAre("structured_outputs.whitespace_pattern"));
}

TEST_F(BoundAnswer, IsFreeWhereNothingIsAskedFor) {
  for (const auto& [api, fields] : std::initializer_list<std::pair<const ApiDialect*, std::string>>{
           {&kChatApi, R"("response_format":{"type":"text"})"},
           {&kChatApi, R"("response_format":null,"structured_outputs":null,"grammar":"")"},
           {&kChatApi, Tools()},
           {&kChatApi, Tools(/*strict=*/true) + R"(,"tool_choice":"none")"},
           {&kResponsesApi, R"("text":{"format":{"type":"text"},"verbosity":"low"})"},
           {&kMessagesApi, R"("output_config":{"effort":"high","format":null})"}}) {
    const PreparedCall prepared = Ask(*api, fields);
    ASSERT_FALSE(prepared.error.has_value()) << fields << prepared.error->message;
    EXPECT_EQ(prepared.call->TakeRequests()[0].grammar, nullptr) << fields;
  }
}

TEST_F(BoundAnswer, IsOfEachChoiceAndOfABatch) {
  EXPECT_THAT(Taken(Chat(R"("n":3,"grammar":"root ::= \"a\"")"), {"a", "b"}), ElementsAre("a"));
  EXPECT_THAT(
      Taken(service.Prepare(kCompletionsApi, R"({"prompt":["a","b"],"n":2,"grammar":"root ::= \"a\""})"), {"a", "b"}),
      ElementsAre("a"));
  BatchLine line = ParseBatchLine(
      1, R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x","grammar":"root ::= \"a\""}})");
  PrepareBatchLine(service.model, service.context, &line);
  ASSERT_FALSE(line.error.has_value()) << line.error->message;
  EXPECT_NE(line.call->TakeRequests()[0].grammar, nullptr);
}

TEST_F(BoundAnswer, ComesBehindReasoningThatIsReadAndIsAllOfAnAnswerWhereItIsNot) {
  const std::string digits = R"("structured_outputs":{"regex":"\\d+"})";
  const std::vector<std::string> texts = {"12", "<think>\nwhy\n</think>\n\n12", "why</think>12", "why"};
  EXPECT_THAT(Taken(Chat(digits), texts), ElementsAre(texts[0], texts[1]));
  EXPECT_THAT(Taken(Ask(kCompletionsApi, digits), texts), ElementsAre("12"));
  service.model.reasoning.parse = false;
  EXPECT_THAT(Taken(Chat(digits), texts), ElementsAre("12"));
  EXPECT_THAT(Taken(Chat(absl::StrCat(Tools(), ",", digits)), texts), ElementsAre("12"));
  service.model.reasoning.parse = true;
  service.model.output_format = OutputFormat::kPlain;
  EXPECT_THAT(Taken(Chat(digits), texts), ElementsAre("12"));
}

TEST_F(BoundAnswer, IsCallsWhereOneIsRequired) {
  const std::vector<std::string> texts = {"Hm.", kLook, kStop, kWrongLook, kLook + "\n" + kStop, "Hm.\n" + kLook};
  const auto expect_calls = [&](const ApiDialect& api, const std::string& tools, const std::string& several,
                                const std::string& one) {
    EXPECT_THAT(Taken(Ask(api, absl::StrCat(tools, ",", several)), texts),
                ElementsAre(kLook, kStop, kLook + "\n" + kStop))
        << api.name;
    EXPECT_THAT(Taken(Ask(api, absl::StrCat(tools, ",", one)), texts), ElementsAre(kLook, kStop)) << api.name;
  };
  expect_calls(kChatApi, Tools(), R"("tool_choice":"required")",
               R"("tool_choice":"required","parallel_tool_calls":false)");
  expect_calls(kResponsesApi, Tools(false, /*flat=*/true), R"("tool_choice":"required")",
               R"("tool_choice":"required","parallel_tool_calls":false)");
  expect_calls(kMessagesApi,
               R"("tools":[{"name":"look","input_schema":{"type":"object","properties":{"n":{"type":"integer"}},)"
               R"("required":["n"]}},{"name":"stop","input_schema":{"type":"object"}}])",
               R"("tool_choice":{"type":"any"})", R"("tool_choice":{"type":"any","disable_parallel_tool_use":true})");
  EXPECT_THAT(Taken(Chat(Tools() + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required",)"
                                   R"("tools":[{"type":"function","function":{"name":"stop"}}]}})"),
                    texts),
              ElementsAre(kStop));
}

TEST_F(BoundAnswer, IsOneCallOfTheToolThatIsNamed) {
  const std::vector<std::string> texts = {"Hm.", kLook, kStop, kWrongLook, kLook + "\n" + kLook};
  EXPECT_THAT(Taken(Chat(Tools() + R"(,"tool_choice":{"type":"function","function":{"name":"look"}})"), texts),
              ElementsAre(kLook));
  EXPECT_THAT(
      Taken(Ask(kResponsesApi, Tools(false, true) + R"(,"tool_choice":{"type":"function","name":"stop"})"), texts),
      ElementsAre(kStop));
  EXPECT_THAT(Taken(Ask(kMessagesApi, R"("tools":[{"name":"look"},{"name":"stop"}],)"
                                      R"("tool_choice":{"type":"tool","name":"stop"})"),
                    texts),
              ElementsAre(kStop));
  EXPECT_THAT(Taken(Chat(R"("tools":[{"type":"custom","custom":{"name":"stop"}}],)"
                         R"("tool_choice":{"type":"custom","custom":{"name":"stop"}})"),
                    {kStop, CallOf("stop", R"({"input": "x"})")}),
              ElementsAre(CallOf("stop", R"({"input": "x"})")));
}

TEST_F(BoundAnswer, HasCallsOfStrictToolsBySchemaAmongFreeText) {
  const std::vector<std::string> texts = {"Hm.", "Hm.\n" + kLook, kWrongLook, CallOf("stop", R"({"any": 1})")};
  EXPECT_THAT(Taken(Chat(Tools(/*strict=*/true)), texts), ElementsAre(texts[0], texts[1], texts[3]));
  EXPECT_THAT(Taken(Ask(kResponsesApi, Tools(true, true)), texts), ElementsAre(texts[0], texts[1], texts[3]));
  EXPECT_THAT(Taken(Ask(kMessagesApi, R"("tools":[{"name":"look","strict":true,"input_schema":{"type":"object",)"
                                      R"("properties":{"n":{"type":"integer"}},"required":["n"]}},{"name":"stop"}])"),
                    texts),
              ElementsAre(texts[0], texts[1], texts[3]));
  EXPECT_THAT(Chat(Tools(true)).call->ignored(), ElementsAre());
}

TEST_F(BoundAnswer, HasTheInputOfACustomToolByItsPattern) {
  const std::vector<std::string> texts = {"Hm.", CallOf("put", R"({"input": "ab"})"),
                                          CallOf("put", R"({"input": "7"})")};
  const std::string tool = R"("tools":[{"type":"custom","name":"put","format":{"type":"grammar","syntax":)";
  const PreparedCall held = Ask(kResponsesApi, tool + R"("regex","definition":"[a-z]+"}}])");
  EXPECT_THAT(Taken(held, texts), ElementsAre(texts[0], texts[1]));
  EXPECT_THAT(held.call->skipped(), ElementsAre());
  const PreparedCall told = Ask(kResponsesApi, tool + R"("lark","definition":"start: /[a-z]+/"}}])");
  EXPECT_THAT(Taken(told, texts), ElementsAre(texts[0], texts[1], texts[2]));
  EXPECT_THAT(told.call->skipped(), ElementsAre("tools.format"));
}

// An agent's request has all of its tools.
TEST_F(BoundAnswer, LeavesArgumentsOpenWhereTheirSchemasAreTooMuch) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"stop","strict":true,"parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"string","minLength":65530},"b":{"type":"string","minLength":65531}}}}}])";
  const std::vector<std::string> texts = {"Hm.", kStop, CallOf("stop", R"({"c": 1})"), CallOf("look", "{}")};
  for (int i = 0; i < 2; ++i) {  // compiled, and kept
    const PreparedCall free = Chat(tools);
    EXPECT_THAT(Taken(free, texts), ElementsAre(texts[0], texts[1], texts[2]));
    EXPECT_THAT(free.call->ignored(), ElementsAre("tools.strict"));
  }
  EXPECT_THAT(Taken(Chat(tools + R"(,"tool_choice":"required")"), texts), ElementsAre(texts[1], texts[2]));
  EXPECT_THAT(Taken(Chat(tools + R"(,"response_format":{"type":"json_object"})"), {"{}", "Hm.", kStop}),
              ElementsAre("{}", kStop));
  ExpectRefused(kChatApi, tools + R"(,"structured_outputs":{"regex":"a{65000}b{65000}"})", "invalid_value",
                "structured_outputs.regex", "needs more than 65536 states");
}

TEST_F(BoundAnswer, LeavesArgumentsOpenWhereTheirSchemaIsALoop) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"stop","strict":true,"parameters":{"type":"object",)"
      R"("properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}}}}}])";
  const std::vector<std::string> texts = {"Hm.", kStop, CallOf("stop", R"({"c": 1})"), CallOf("look", "{}")};
  EXPECT_THAT(Taken(Chat(tools), texts), ElementsAre(texts[0], texts[1], texts[2]));
  EXPECT_THAT(Chat(tools).call->ignored(), ElementsAre("tools.strict"));
  EXPECT_THAT(Taken(Chat(tools + R"(,"tool_choice":"required")"), texts), ElementsAre(texts[1], texts[2]));
  ExpectRefused(kChatApi, tools + R"(,"structured_outputs":{"regex":"("})", "invalid_value", "structured_outputs.regex",
                "expected");
}

TEST_F(BoundAnswer, IsFreeWhereAnAnswerGoesOnWithStrictTools) {
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well"}])";
  const PreparedCall call = service.Prepare(
      kChatApi, absl::StrCat("{", messages, R"(,"max_tokens":9,"continue_final_message":true,)", Tools(true), "}"));
  ASSERT_FALSE(call.error.has_value()) << call.error->message;
  EXPECT_EQ(call.call->TakeRequests()[0].grammar, nullptr);
  EXPECT_THAT(call.call->ignored(), ElementsAre("tools.strict"));
}

TEST_F(BoundAnswer, IsReadAsItsForm) {
  const std::string call = CallOf("stop", "{}");
  const std::string choice = absl::StrReplaceAll(call, {{"\"", "\\\""}, {"\n", "\\n"}});
  const std::string fields = absl::StrCat(Tools(), R"(,"structured_outputs":{"choice":[" so: )", choice, "\"]}");
  const Json message = Whole(Chat(fields), Bytes("<think>Hm.</think>\n so: " + call),
                             pb::RequestFinished::REASON_STOP)["choices"][0]["message"];
  EXPECT_EQ(message["content"], " so: " + call);
  EXPECT_EQ(message["reasoning_content"], "Hm.");
}

TEST_F(BoundAnswer, IsEitherOfItsFormOrACallThatTheModelMayMake) {
  EXPECT_THAT(Taken(Chat(Tools() + R"(,"response_format":{"type":"json_object"})"),
                    {"{}", "Hm.", kWrongLook, kStop, "{}" + kStop}),
              ElementsAre("{}", kWrongLook, kStop));
  EXPECT_THAT(
      Taken(Chat(Tools() + R"(,"tool_choice":"required","response_format":{"type":"json_object"})"), {"{}", kStop}),
      ElementsAre(kStop));
}

TEST_F(BoundAnswer, CannotBeMadeOfCallsThatNobodyReadsOrKnows) {
  const std::string strict = Tools(/*strict=*/true), required = strict + R"(,"tool_choice":"required")";
  const auto expect_left = [&](const char* why, const char* message) {
    SCOPED_TRACE(why);
    ExpectRefused(kChatApi, required, "unsupported_parameter", "tool_choice", message);
    const PreparedCall free = Chat(strict);
    ASSERT_FALSE(free.error.has_value()) << free.error->message;
    EXPECT_EQ(free.call->TakeRequests()[0].grammar, nullptr);
    EXPECT_THAT(free.call->ignored(), ElementsAre("tools.strict"));
  };
  service.model.parse_calls = false;
  expect_left("nobody reads them", "are not read");
  service.model.parse_calls = true;
  service.model.tool_format = OutputFormat::kPlain;
  expect_left("an unknown family", "are not read");
  EXPECT_THAT(Taken(Chat(Tools() + R"(,"response_format":{"type":"json_object"})"), {"{}", "Hm."}), ElementsAre("{}"));
  service.model.tool_format = OutputFormat::kGemma4;
  expect_left("a family that is not bound", "'gemma_4' cannot be held to a form");
  ExpectRefused(kChatApi, Tools() + R"(,"response_format":{"type":"json_object"})", "unsupported_parameter", "tools",
                "'gemma_4' cannot be held to a form");
}

TEST_F(BoundAnswer, IsRefusedAtTheirPlaceWhereItIsAskedForWrongly) {
  constexpr char kFormat[] = "response_format", kJsonSchema[] = "response_format.json_schema.schema";
  for (const auto& [fields, code, param, message] :
       std::initializer_list<std::tuple<const char*, const char*, const char*, const char*>>{
           {R"("response_format":{"type":"xml"})", "invalid_value", kFormat, "expected a type of text, json_object"},
           {R"("response_format":{})", "invalid_value", kFormat, "expected a type of"},
           {R"("response_format":"json")", "invalid_value", kFormat, "expected an object with a type, found string"},
           {R"("response_format":{"type":"json_schema","json_schema":7})", "invalid_value",
            "response_format.json_schema", "expected an object"},
           {R"("response_format":{"type":"json_schema"})", "missing_parameter", "response_format.json_schema",
            "is missing"},
           {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})", "missing_parameter", kJsonSchema,
            "is missing"},
           {R"("response_format":{"type":"json_schema","json_schema":{"name":7,"schema":{}}})", "invalid_value",
            "response_format.json_schema.name", "expected a string"},
           {R"("response_format":{"type":"json_schema","json_schema":{"strict":1,"schema":{}}})", "invalid_value",
            "response_format.json_schema.strict", "expected true or false"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})", "invalid_value", kJsonSchema,
            "a JSON schema, found array"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"thing"}}})", "invalid_value",
            kJsonSchema, "/type"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}})",
            "unsupported_schema", kJsonSchema, "/properties/a/not"},
           {R"("json_schema":{"uniqueItems":true})", "unsupported_schema", "json_schema", "/uniqueItems"},
           {R"("structured_outputs":7)", "invalid_value", "structured_outputs", "expected an object"},
           {R"("structured_outputs":{})", "invalid_value", "structured_outputs", "has no form"},
           {R"("structured_outputs":{"regex":"a","choice":["b"]})", "invalid_value", "structured_outputs.choice",
            "one form too many"},
           {R"("structured_outputs":{"regex":"(a"})", "invalid_value", "structured_outputs.regex", "expected"},
           {R"("structured_outputs":{"regex":7})", "invalid_value", "structured_outputs.regex", "expected a string"},
           {R"("structured_outputs":{"choice":"a"})", "invalid_value", "structured_outputs.choice",
            "a list of strings"},
           {R"("structured_outputs":{"choice":[1]})", "invalid_value", "structured_outputs.choice",
            "a list of strings"},
           {R"("structured_outputs":{"choice":[]})", "invalid_value", "structured_outputs.choice", "found none"},
           {R"("structured_outputs":{"json":"{"})", "invalid_value", "structured_outputs.json", "end of input"},
           {R"("structured_outputs":{"grammar":"x"})", "invalid_value", "structured_outputs.grammar", "expected"},
           {R"("grammar":"root ::= root \"a\"")", "invalid_value", "grammar", "root"},
           {R"("grammar":7)", "invalid_value", "grammar", "expected a string"},
           {R"("response_format":{"type":"text"},"grammar":"x")", "invalid_value", "grammar", "expected one of"},
           {R"("grammar":"x","json_schema":{})", "invalid_value", "json_schema", "expected one of"},
           {R"("grammar":"x","guided_regex":"a")", "invalid_value", "guided_regex", "expected one of"},
           {R"("guided_choice":[1])", "invalid_value", "guided_choice", "a list of strings"},
           {R"("grammar":"root ::= \"a\"","ignore_eos":true)", "invalid_value", "ignore_eos", "is true beside grammar"},
       }) {
    ExpectRefused(kChatApi, fields, code, param, message);
    ExpectRefused(kCompletionsApi, fields, code, param, message);
  }
  ExpectRefused(kResponsesApi, R"("text":7)", "invalid_value", "text", "expected an object");
  ExpectRefused(kResponsesApi, R"("text":{"format":{"type":"verse"}})", "invalid_value", "text.format", "expected");
  ExpectRefused(kResponsesApi, R"("text":{"format":{"type":"json_schema","name":"a"}})", "missing_parameter",
                "text.format.schema", "is missing");
  ExpectRefused(kResponsesApi, R"("text":{"format":{"type":"json_schema","name":"a","schema":{"if":{}}}})",
                "unsupported_schema", "text.format.schema", "/if");
  ExpectRefused(kMessagesApi, R"("output_config":{"format":{"type":"json_schema","schema":{"not":{}}}})",
                "unsupported_schema", "output_config.format.schema", "/not");
  ExpectRefused(kMessagesApi,
                R"("output_config":{"format":{"type":"json_object"}},"output_format":{"type":"json_object"})",
                "invalid_value", "output_format", "expected one of");
}

TEST_F(BoundAnswer, IsRefusedWhereItsFormIsLarge) {
  std::string choices = R"("a")", values = "0";
  for (int i = 0; i < 300'000; ++i) choices += ",\"a\"";
  for (int i = 0; i < 150'000; ++i) values += ",0";
  ExpectRefused(kChatApi, absl::StrCat(R"("structured_outputs":{"choice":[)", choices, "]}"), "invalid_value",
                "structured_outputs.choice", "has 300001 texts, expected at most 262144");
  ExpectRefused(kChatApi, absl::StrCat(R"("structured_outputs":{"choice":[")", std::string(1 << 20, 'a'), "\"]}"),
                "invalid_value", "structured_outputs.choice", "expected at most 262144 bytes");
  ExpectRefused(kChatApi, absl::StrCat(R"("json_schema":{"const":[)", values, "]}"), "invalid_value", "json_schema",
                "bytes, expected at most 262144");
}

TEST_F(BoundAnswer, IsAskedForAsAWhole) {
  const char* const begun = R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"{"}],)"
                            R"("max_tokens":9,"continue_final_message":true,)";
  for (const auto& [api, fields] : std::initializer_list<std::pair<const ApiDialect*, std::string>>{
           {&kChatApi, R"("response_format":{"type":"json_object"})"},
           {&kMessagesApi, R"("output_config":{"format":{"type":"json_object"}})"},
           {&kMessagesApi, R"("tools":[{"name":"look"}],"tool_choice":{"type":"any"})"}}) {
    const PreparedCall prepared = service.Prepare(*api, absl::StrCat(begun, fields, "}"));
    ASSERT_TRUE(prepared.error.has_value()) << fields;
    EXPECT_THAT(prepared.error->message, HasSubstr("the last message has begun it")) << fields;
  }
}

// Its text may hold what ends others.
TEST_F(BoundAnswer, IsNotCutByATextThatEndsOtherAnswers) {
  ToyVocabulary toy = ToyBytePairs();
  const TokenId end = toy.Add("<|end|>", 3);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  writer.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
  const std::unique_ptr<Tokenizer> tokenizer = OpenOrDie(writer);
  const ChatFormat chatml({.given = std::nullopt, .built_in = "chatml"}, GgufMetadata(), tokenizer.get());
  AnswerGrammars grammars(tokenizer.get());
  service.model.tokenizer = tokenizer.get();
  service.model.chat = &chatml;
  service.model.grammars = &grammars;
  service.model.vocab = tokenizer->vocab_size();
  const std::string text = R"({"a": "<|im_end|>"})";
  std::vector<TokenId> tokens = Bytes(text);
  tokens.push_back(end);
  const auto content = [&](const char* fields) {
    return Whole(Chat(fields), tokens, pb::RequestFinished::REASON_STOP)["choices"][0]["message"]["content"];
  };
  EXPECT_EQ(content(""), R"({"a": ")");
  EXPECT_EQ(content(R"("response_format":{"type":"json_object"})"), text);
}

TEST_F(BoundAnswer, IsRepeatedByResponses) {
  const std::string asked = absl::StrCat(R"({"type":"json_schema","name":"a","strict":true,"schema":)", kSchema, "}");
  const PreparedCall prepared = Ask(kResponsesApi, absl::StrCat(R"("text":{"format":)", asked, "}"));
  EXPECT_EQ(Whole(prepared, Bytes("{}"), pb::RequestFinished::REASON_LENGTH)["text"]["format"], Json::parse(asked));
}

}  // namespace
}  // namespace stagecoach::testing
