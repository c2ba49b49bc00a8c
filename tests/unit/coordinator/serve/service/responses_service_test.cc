// Bodies in the shape that an agent for code sends to Responses, before an engine that plays what a model writes: what
// it gets, and that its second turn continues the tokens of its first.

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/front/model_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr char kResponses[] = "/v1/responses";

// A service whose model writes one text after the other; it keeps the prompts that it was given.
class TurnService {
 public:
  TurnService(ChatTemplateChoice chat, std::vector<std::string> answers)
      : file_(GgufFile::Open(testing::DemoModelPath()).value()), tokenizer_(OpenTokenizer(*file_).value()) {
    ScriptedServiceOptions options;
    options.chat = std::move(chat);
    options.engine.context = 1 << 17;
    options.engine.blocks = 1 << 14;
    options.engine.script = [this, answers = std::move(answers)](const pb::SubmitRequest& submit) {
      const std::lock_guard<std::mutex> lock(mu_);
      prompts_.emplace_back(submit.prompt().begin(), submit.prompt().end());
      testing::ScriptedAnswer answer;
      const std::string& text = answers[(prompts_.size() - 1) % answers.size()];
      answer.tokens = tokenizer_->Encode(text, /*add_special=*/false, /*parse_special=*/false);
      return answer;
    };
    service_ = std::make_unique<ScriptedService>(std::move(options));
  }

  ScriptedService& service() { return *service_; }
  // The response that a stream ends with.
  Json Respond(const Json& body) {
    const Stream stream = service_->ReadStream(kResponses, body.dump());
    EXPECT_EQ(stream.status, 200) << stream.body;
    EXPECT_EQ(stream.ended.ToString(), "OK");
    if (stream.data.empty()) return Json::object();
    for (size_t i = 0; i < stream.data.size(); ++i) EXPECT_EQ(Json::parse(stream.data[i])["sequence_number"], i);
    const Json last = Json::parse(stream.data.back());
    EXPECT_EQ(last["type"], "response.completed") << last.dump().substr(0, 300);
    return last.value("response", Json::object());
  }
  std::vector<std::vector<TokenId>> prompts() {
    const std::lock_guard<std::mutex> lock(mu_);
    return prompts_;
  }
  std::string TextOf(const std::vector<TokenId>& tokens) const { return tokenizer_->Decode(tokens, true); }

 private:
  const std::unique_ptr<GgufFile> file_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  std::mutex mu_;
  std::vector<std::vector<TokenId>> prompts_;  // guarded by mu_
  std::unique_ptr<ScriptedService> service_;
};

const ChatTemplateChoice kSimple = {
    .given = ChatTemplateSource{"simple",
                                "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}"
                                "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    .built_in = ""};

std::string RulesOf(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) absl::StrAppend(&text, "Rule ", i, ": keep lines short.\n");
  return text;
}

// The first turn of an agent.
Json AgentBody() {
  const auto text = [](std::string words) { return Json{{"type", "input_text"}, {"text", std::move(words)}}; };
  const auto message = [](const char* id, const char* role, Json content) {
    return Json{{"type", "message"}, {"id", id}, {"role", role}, {"content", std::move(content)}};
  };
  Json body = Json::parse(R"({"model":"m","stream":true,"store":false,"tool_choice":"auto","parallel_tool_calls":true,
      "reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],
      "prompt_cache_key":"00000000-0000-4000-8000-000000000000","client_metadata":{"turn_id":"t"},
      "tools":[{"type":"function","name":"exec_command","description":"Runs a command.","strict":false,"parameters":{
                  "type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"],
                  "additionalProperties":false}},
               {"type":"namespace","name":"team","description":"Others.","tools":[
                  {"type":"function","name":"send_input","description":"Sends.","parameters":{"type":"object"}}]},
               {"type":"web_search","external_web_access":false}]})");
  body["input"] = Json::array({message("msg_a", "developer", Json::array({text(RulesOf(17'000))})),
                               message("msg_b", "developer", Json::array({text(RulesOf(2'000)), text(RulesOf(300))})),
                               message("msg_c", "user", Json::array({text("2026-01-01, /home/user")})),
                               message("msg_d", "user", Json::array({text("Say hello")}))});
  return body;
}

void AppendItems(const Json& items, Json* body) {
  for (const Json& item : items) (*body)["input"].push_back(item);
}

// Of the first, how many tokens the second begins with.
size_t Common(const std::vector<TokenId>& first, const std::vector<TokenId>& second) {
  const auto end = std::mismatch(first.begin(), first.end(), second.begin(), second.end()).first;
  return static_cast<size_t>(end - first.begin());
}

TEST(RecordedAgent, GetsItsStreamAndItsSecondTurnContinuesTheFirst) {
  TurnService turns(kSimple, {"Hello.", "You are welcome."});
  Json body = AgentBody();
  const Json first = turns.Respond(body);
  ASSERT_EQ(first["output"].size(), 1u);
  EXPECT_EQ(first["output"][0]["content"][0]["text"], "Hello.");
  EXPECT_EQ(first["tools"], body["tools"]);
  AppendItems(first["output"], &body);
  AppendItems(Json::parse(R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Thanks"}]}])"),
              &body);
  EXPECT_EQ(turns.Respond(body)["output"][0]["content"][0]["text"], "You are welcome.");
  const auto prompts = turns.prompts();
  EXPECT_GT(prompts[0].size(), 4000u);
  EXPECT_EQ(Common(prompts[0], prompts[1]), prompts[0].size()) << turns.TextOf(prompts[1]).substr(19'000);
}

constexpr char kHello[] = R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Thanks"}]}])";

// What a model of each published template writes when it thinks (where it does), speaks and calls.
struct PublishedTalk {
  const char* file;
  const char* calling;  // null: it has no calls
};
constexpr char kTaggedCall[] =
    "One moment.\n\n<tool_call>\n<function=exec_command>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>";
constexpr char kThoughtTaggedCall[] =
    "I should look.\n</think>\n\nOne moment.\n\n"
    "<tool_call>\n<function=exec_command>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>";
constexpr char kHermesCall[] =
    "One moment.\n<tool_call>\n{\"name\": \"exec_command\", \"arguments\": {\"cmd\": \"ls\"}}\n</tool_call>";
constexpr PublishedTalk kPublishedTalks[] = {
    {"qwen2.5.jinja", kHermesCall},
    {"qwen3.jinja", kHermesCall},
    {"hermes-3.jinja", kHermesCall},
    {"smollm3.jinja", kHermesCall},
    {"qwen3-coder.jinja", kTaggedCall},
    {"qwen3.5.jinja", kThoughtTaggedCall},
    {"glm-4.6.jinja",
     "\n<think>I should look.</think>\nOne moment.\n<tool_call>exec_command\n<arg_key>cmd</arg_key>\n"
     "<arg_value>ls</arg_value>\n</tool_call>"},
    {"gpt-oss.jinja",
     "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant<|channel|>commentary to=functions."
     "exec_command <|constrain|>json<|message|>{\"cmd\": \"ls\"}"},
    {"kimi-k2.jinja",
     "One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.exec_command:0<|tool_call_argument_begin|>"
     "{\"cmd\": \"ls\"}<|tool_call_end|><|tool_calls_section_end|>"},
    {"llama-3.1.jinja", "{\"name\": \"exec_command\", \"parameters\": {\"cmd\": \"ls\"}}"},
    {"mistral-small-3.2.jinja", "One moment.[TOOL_CALLS]exec_command[CALL_ID]call00001[ARGS]{\"cmd\": \"ls\"}"},
    {"minimax-m2.jinja",
     "I should look.\n</think>\n\nOne moment.\n<minimax:tool_call>\n<invoke name=\"exec_command\">\n"
     "<parameter name=\"cmd\">ls</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"deepseek-v3.1.jinja",
     "One moment.<\xEF\xBD\x9Ctool\xE2\x96\x81"
     "calls\xE2\x96\x81"
     "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
     "call\xE2\x96\x81"
     "begin\xEF\xBD\x9C>exec_command<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>{\"cmd\": \"ls\"}"
     "<\xEF\xBD\x9Ctool\xE2\x96\x81"
     "call\xE2\x96\x81"
     "end\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
     "calls\xE2\x96\x81"
     "end\xEF\xBD\x9C>"},
    {"gemma-3.jinja", nullptr},
    {"llama-2.jinja", nullptr},
};

struct PublishedTemplate : ::testing::TestWithParam<PublishedTalk> {};

// Of the tokens that ask for the answer a few may be others once it is there: "<think>", where thoughts are left out.
constexpr size_t kMostLeft = 16;

TEST_P(PublishedTemplate, TakesAnAgentsTurnsOneAfterTheOther) {
  SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", GetParam().file));
  const bool calls = GetParam().calling != nullptr;
  TurnService turns({.given = ChatTemplateSource{"published", testing::ReadFileOrDie(path)}, .built_in = ""},
                    {calls ? GetParam().calling : "Hello.", "Done."});
  Json body = AgentBody();
  const Json first = turns.Respond(body);
  const Json output = first.value("output", Json::array());
  ASSERT_FALSE(output.empty());
  AppendItems(output, &body);
  if (calls) {
    const Json& call = output.back();
    EXPECT_EQ(call["type"], "function_call");
    EXPECT_EQ(call["name"], "exec_command");
    EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()), (Json{{"cmd", "ls"}}));
    const Json result = {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "a file"}};
    AppendItems(Json::array({result}), &body);
  } else {
    AppendItems(Json::parse(kHello), &body);
  }
  turns.Respond(body);
  const auto prompts = turns.prompts();
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_GT(prompts[0].size(), 4000u);
  EXPECT_GE(Common(prompts[0], prompts[1]) + kMostLeft, prompts[0].size())
      << turns.TextOf({prompts[0].end() - 64, prompts[0].end()}) << "\n---\n"
      << turns.TextOf(prompts[1]).substr(19'000);
}

INSTANTIATE_TEST_SUITE_P(Each, PublishedTemplate, ::testing::ValuesIn(kPublishedTalks),
                         [](const ::testing::TestParamInfo<PublishedTalk>& info) {
                           std::string name;
                           for (const char c : std::string(info.param.file))
                             name += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(RecordedAgent, IsAnsweredWhateverElseItsBodyHolds) {
  TurnService turns(kSimple, {"Hello."});
  const std::string tools = R"([{"type":"additional_tools","tools":[{"type":"custom","name":"patch","format":{"type":)"
                            R"("grammar","syntax":"lark","definition":"start: x"}}]}])";
  for (const char* more : {R"({"model":null})", R"({"reasoning":null,"text":{"verbosity":"low"}})",
                           R"({"service_tier":"auto","max_tool_calls":3,"safety_identifier":"x","x":{"y":[]}})",
                           R"({"reasoning":{"effort":"xhigh","summary":"auto","more":1},"truncation":"auto"})",
                           R"({"tools":[],"tool_choice":"auto"})", R"({"input":""})", R"({"input":[]})"}) {
    Json body = AgentBody();
    AppendItems(Json::parse(tools), &body);
    body.update(Json::parse(more));
    const Json response = turns.Respond(body);
    EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hello.") << more;
    EXPECT_EQ(response["model"], "scripted") << more;
  }
}

TEST(ResponsesRoutes, CountAndKeepNothing) {
  TurnService turns(kSimple, {"Hello."});
  ScriptedService& service = turns.service();
  const std::string body = R"({"input":"How many?","instructions":"Be brief."})";
  const Json whole = Json::parse(service.Post(kResponses, body).body);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Hello.");
  const Json counted = Json::parse(service.Post("/v1/responses/input_tokens", body).body);
  EXPECT_EQ(counted["object"], "response.input_tokens");
  EXPECT_EQ(counted["input_tokens"], whole["usage"]["input_tokens"]);
  EXPECT_EQ(counted["input_tokens"], turns.prompts()[0].size());
  const auto kept = service.Get(absl::StrCat("/v1/responses/", whole["id"].get<std::string>()));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->status, 404);
  const Json error = Json::parse(kept->body)["error"];
  EXPECT_EQ(error["code"], "not_found");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("POST /v1/responses with the whole conversation"));
  EXPECT_EQ(service.Post("/v1/responses/input_tokens", R"({"input":7})").status, 400);
  EXPECT_EQ(service.Get(kResponses)->status, 405);
}

TEST(ResponsesRoutes, RefuseWhatIsWrongAndGoOn) {
  TurnService turns(kSimple, {"Hello."});
  const auto list = [](const std::string& item, int count) {
    std::string text = "[" + item;
    for (int i = 1; i < count; ++i) absl::StrAppend(&text, ",", item);
    return text + "]";
  };
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  const std::string many_parts =
      absl::StrCat(R"([{"role":"user","content":)", list(R"({"type":"input_text","text":"x"})", 20'000), "}]");
  const std::pair<std::string, const char*> bodies[] = {
      {R"({"input":)" + list("{}", 100'000) + "}", "100000 items"},
      {R"({"input":)" + many_parts + "}", "more than 16384 parts"},
      {R"({"input":"x","tools":)" + list("{}", 100'000) + "}", "tools"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n","tools":)" + list("{}", 1'000) + "}]}", "tools"},
      {R"({"input":[{"type":"additional_tools","tools":)" + list(R"({"type":"web_search"})", 1'000) + "}]}", "tools"},
      {R"({"input":[{"type":"reasoning","content":)" + deep + "}]}", "input[0].content[0]"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"m","tools":[)"
       R"({"type":"function","name":"f","parameters":7}]}]},{"type":"function","name":"f","parameters":7}]})",
       "tools[1].parameters"},
      {R"({"input":"x","metadata":"y"})", "metadata"},
      {R"({"input":"x","include":)" + list("7", 9) + "}", "include"},
  };
  for (const char* path : {kResponses, "/v1/responses/input_tokens"}) {
    for (const auto& [body, what] : bodies) {
      const bool counts = path != std::string(kResponses);
      if (counts && (absl::StrContains(body, "metadata") || absl::StrContains(body, "include"))) continue;
      const HttpReply reply = turns.service().Post(path, body);
      EXPECT_EQ(reply.status, 400) << path << " " << body.substr(0, 100) << reply.body.substr(0, 300);
      EXPECT_LT(reply.body.size(), 1000u);
      EXPECT_THAT(Json::parse(reply.body)["error"]["message"].get<std::string>(), HasSubstr(what));
    }
  }
  EXPECT_EQ(turns.service().Post(kResponses, R"({"input":"x"})").status, 200);
}

}  // namespace
}  // namespace stagecoach
