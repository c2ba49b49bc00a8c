// serve: answers that are held to a form. The demo model knows of none, so what it says has the form by the grammar
// alone. It does not think before, which it would do without an end.

#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/e2e/support/recorded_answer.h"
#include "tests/e2e/support/server.h"

namespace stagecoach::testing {
namespace {

constexpr int kMostTokens = 400;

const Json& PersonSchema() {
  static const auto* const kSchema = new Json(Json::parse(R"({"type": "object", "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
      "born": {"type": "string", "format": "date"}, "parents": {"type": "array", "items": {"$ref": "#/$defs/who"},
      "minItems": 1, "maxItems": 2}, "reign": {"anyOf": [{"type": "null"}, {"const": "long"}, false]},
      "cubits": {"type": "number", "exclusiveMinimum": 0, "maximum": 6.5}},
      "required": ["name", "age", "parents", "cubits"], "$defs": {"who": {"enum": ["Adam", "Eve", "\"nobody\""]}}})"));
  return *kSchema;
}

Json ToolsJson() {
  return Json::array(
      {{{"type", "function"}, {"function", {{"name", "note"}, {"parameters", PersonSchema()}}}},
       {{"type", "function"},
        {"function",
         {{"name", "stop"}, {"parameters", {{"type", "object"}, {"properties", {{"now", {{"type", "boolean"}}}}}}}}}}});
}

Question With(Question question, const char* field, Json value) {
  question.body[field] = std::move(value);
  return question;
}

// An answer's text; of calls names and arguments.
std::vector<Question> FormQuestions() {
  const Json schema = {{"type", "json_schema"}, {"json_schema", {{"name", "person"}, {"schema", PersonSchema()}}}};
  const Question completion = CompletionQuestion("In the beginning", kMostTokens, 5);
  const Question chat = With(ChatQuestion("Who?", kMostTokens, 6), "reasoning_effort", "none");
  const Question tools = With(chat, "tools", ToolsJson());
  return {With(chat, "response_format", schema),
          With(completion, "structured_outputs", {{"json", PersonSchema()}}),
          With(completion, "structured_outputs", {{"regex", "[A-Z][a-z]{2,9}( [a-z]{1,5}){3}\\."}}),
          With(chat, "structured_outputs", {{"choice", {"yes, verily", "no"}}}),
          With(chat, "grammar", "root ::= \"<\" verse{2} \">\"\nverse ::= [0-9] \":\" [0-9]{1,3} \" \""),
          With(tools, "tool_choice", "required"),
          With(With(tools, "tool_choice", "required"), "parallel_tool_calls", false),
          With(tools, "tool_choice", {{"type", "function"}, {"function", {{"name", "note"}}}})};
}
constexpr size_t kSchemas = 2, kRequired = 5, kNamed = 7;  // of FormQuestions(): up to here, from here on, here

struct FormServer : Server {
  explicit FormServer(const Words& more)
      : Server(
            Joined({"--chat-template-file", SourcePath("tests/clients/hermes.jinja"), "--max-num-seqs", "16"}, more)) {
    EXPECT_TRUE(AwaitReady()) << process().err();
  }
};

// The lines that Debian's validator of schemas reads.
class Validated {
 public:
  void Add(const std::string& text) { texts_.push_back(text); }
  ~Validated() {
    const Json line = {{"schema", PersonSchema()}, {"texts", texts_}};
    const std::string script = SourcePath("tests/unit/coordinator/text/grammar/json/validate.py");
    const ProgramResult result = RunProgram("/usr/bin/python3", {script}, line.dump() + "\n");
    if (result.exit_code == 77) {
      std::cerr << "NOT RUN: there is no python3-jsonschema to validate the answers with\n";
    } else {
      EXPECT_THAT(result, Prints(absl::StrCat(texts_.size(), " texts\n")));
    }
  }

 private:
  Json texts_ = Json::array();
};

Json Arguments(const Json& call) { return Json::parse(call["arguments"].get<std::string>()); }

TEST(ServeForms, AreThoseOfEveryAnswerHoweverManyStagesMakeIt) {
  std::vector<Question> questions = FormQuestions();
  std::vector<RecordedAnswer> expected;
  Validated validated;
  for (const char* stages : {"1", "2"}) {
    FormServer server({"--pp", stages});
    const std::vector<RecordedAnswer> answers = RecordAll(server.url(), questions);
    if (!expected.empty()) ExpectTheSame(answers, expected);
    expected = answers;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_TRUE(answers[i].complete) << answers[i].error;
      EXPECT_EQ(answers[i].choices.at(0).finish_reason, i < kRequired ? "stop" : "tool_calls") << answers[i].text();
      if (i < kSchemas) validated.Add(answers[i].text());
    }
    EXPECT_THAT(answers[2].text(), ::testing::MatchesRegex("[A-Z][a-z]{2,9}( [a-z]{1,5}){3}\\."));
    EXPECT_THAT(answers[3].text(), ::testing::AnyOf("yes, verily", "no"));
    EXPECT_THAT(answers[4].text(), ::testing::MatchesRegex("<([0-9]:[0-9]+ ){2}>"));
    EXPECT_THAT(answers[kNamed].text(), StartsWith("note"));
    for (Question& question : questions) question = AsStream(std::move(question));
    EXPECT_EQ(server.End().exit_code, 0) << server.process().err();
  }
}

TEST(ServeForms, AreTheSameOfEveryApiAndCallsAreCalls) {
  FormServer server({"--pp", "2"});
  Validated validated;
  const auto ask = [&](const char* path, const Json& more) {
    Json body = {{"temperature", 1}, {"seed", 9}};
    if (path == absl::string_view("/v1/responses")) {
      body.update({{"input", "Who?"}, {"max_output_tokens", kMostTokens}, {"reasoning", {{"effort", "none"}}}});
    } else {
      body.update({{"messages", {{{"role", "user"}, {"content", "Who?"}}}}, {"max_tokens", kMostTokens}});
      body["reasoning_effort"] = "none";
      body["thinking"] = {{"type", "disabled"}};
    }
    body.update(more);
    const HttpReply reply = server.Post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  };
  const Json schema = {{"type", "json_schema"}, {"name", "person"}, {"schema", PersonSchema()}};
  const Json chat = ask(kChatPath, {{"response_format", {{"type", "json_schema"}, {"json_schema", schema}}}});
  const std::string text = chat["choices"][0]["message"]["content"];
  validated.Add(text);
  EXPECT_EQ(ask("/v1/responses", {{"text", {{"format", schema}}}})["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(ask("/v1/messages", {{"output_config", {{"format", schema}}}})["content"][0]["text"], text);

  const Json call =
      ask(kChatPath, {{"tools", ToolsJson()},
                      {"tool_choice", {{"type", "function"}, {"function", {{"name", "note"}}}}}})["choices"][0];
  EXPECT_EQ(call["finish_reason"], "tool_calls");
  EXPECT_TRUE(call["message"]["content"].is_null()) << call;
  ASSERT_EQ(call["message"]["tool_calls"].size(), 1u) << call;
  const Json arguments = Arguments(call["message"]["tool_calls"][0]["function"]);
  validated.Add(arguments.dump());
  Json flat = Json::array(), blocks = Json::array();
  for (const Json& tool : ToolsJson()) {
    Json& function = flat.emplace_back(tool["function"]);
    function["type"] = "function";
    blocks.push_back({{"name", function["name"]}, {"input_schema", function["parameters"]}});
  }
  const Json response =
      ask("/v1/responses", {{"tools", flat}, {"tool_choice", {{"type", "function"}, {"name", "note"}}}});
  ASSERT_EQ(response["output"].size(), 1u) << response;
  EXPECT_EQ(response["output"][0]["type"], "function_call");
  EXPECT_EQ(Arguments(response["output"][0]), arguments);
  const Json message = ask("/v1/messages", {{"tools", blocks}, {"tool_choice", {{"type", "tool"}, {"name", "note"}}}});
  EXPECT_EQ(message["stop_reason"], "tool_use");
  ASSERT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["content"][0]["input"], arguments);
  EXPECT_EQ(ask("/v1/messages", {{"tools", blocks}, {"tool_choice", {{"type", "any"}}}})["stop_reason"], "tool_use");
  // The limit cuts, and nothing is mended.
  const Json cut =
      ask(kChatPath, {{"max_tokens", 4}, {"response_format", {{"type", "json_schema"}, {"json_schema", schema}}}});
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_THAT(text, StartsWith(cut["choices"][0]["message"]["content"].get<std::string>()));
  EXPECT_EQ(server.End().exit_code, 0) << server.process().err();
}

}  // namespace
}  // namespace stagecoach::testing
