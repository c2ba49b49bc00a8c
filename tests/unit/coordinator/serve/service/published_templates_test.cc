// The published templates of models that think and call tools, before an engine that plays what such a model writes:
// what a client gets, and what of it the next turn's prompt has.

#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "coordinator/front/model_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/service/scripted_service.h"

namespace stagecoach {
namespace {

constexpr char kTalk[] = "/v1/chat/completions";

// A service with a published template, whose model always writes `raw`; it keeps the prompts that it was given.
class TalkingService {
 public:
  TalkingService(const std::string& chat_template, const std::string& raw)
      : file_(GgufFile::Open(testing::DemoModelPath()).value()), tokenizer_(OpenTokenizer(*file_).value()) {
    ScriptedServiceOptions options;
    options.chat = {.given = ChatTemplateSource{.name = "published", .text = chat_template}, .built_in = ""};
    testing::ScriptedAnswer answer;
    answer.tokens = tokenizer_->Encode(raw, /*add_special=*/false, /*parse_special=*/false);
    options.engine.script = [this, answer](const pb::SubmitRequest& submit) {
      const std::lock_guard<std::mutex> lock(mu_);
      prompt_.assign(submit.prompt().begin(), submit.prompt().end());
      return answer;
    };
    service_ = std::make_unique<ScriptedService>(std::move(options));
  }

  // What the model says to these messages.
  Json Ask(const Json& messages, const Json& more = Json::object()) {
    Json body = {{"messages", messages}, {"tools", Tools()}, {"max_tokens", 500}};
    body.update(more);
    const HttpReply reply = service_->Post(kTalk, body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? Json::parse(reply.body)["choices"][0] : Json::object();
  }
  // The prompt of the latest request.
  std::string Prompt() {
    const std::lock_guard<std::mutex> lock(mu_);
    return tokenizer_->Decode(prompt_, /*render_control=*/true);
  }

  static Json Tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "look", "description": "d", "parameters": {
        "type": "object", "properties": {"where": {"type": "string"}, "days": {"type": "integer"}}}}}])");
  }

 private:
  const std::unique_ptr<GgufFile> file_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  std::mutex mu_;
  std::vector<TokenId> prompt_;  // guarded by mu_
  std::unique_ptr<ScriptedService> service_;
};

const Json& Question() {
  static const Json messages = Json::array({Json{{"role", "user"}, {"content", "What is here?"}}});
  return messages;
}

constexpr char kCall[] =
    "<tool_call>\n<function=look>\n<parameter=where>\nhere & there\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>";

// What a model of a template's family writes when it calls look(where = "here & there", days = 3).
struct PublishedCase {
  const char* file;
  std::string raw;
  const char* reasoning;
  const char* content;
  std::string history;  // how the next turn's prompt has the call
  bool tells = true;    // the template tells the model of the tools
};

std::vector<PublishedCase> PublishedCases() {
  const std::string arguments = R"({"where": "here & there", "days": 3})";
  const std::string json =
      absl::StrCat("<tool_call>\n{\"name\": \"look\", \"arguments\": ", arguments, "}\n</tool_call>");
  const std::string thought = "<think>\nI should look.\n</think>\n\n", said = "One moment.";
  return {
      {"qwen2.5", absl::StrCat(said, "\n", json), "", "One moment.", "{\"name\": \"look\", \"arguments\": {"},
      {"qwen3", absl::StrCat(thought, json), "I should look.", "", "{\"name\": \"look\", \"arguments\": {"},
      {"hermes-3", json, "", "", "\"name\": \"look\""},
      {"qwen3-coder", absl::StrCat(said, "\n\n", kCall), "", "One moment.", kCall},
      {"qwen3.5", absl::StrCat("I should look.\n</think>\n\nOne moment.\n\n", kCall), "I should look.", "One moment.",
       absl::StrCat("<think>\nI should look.\n</think>\n\nOne moment.\n\n", kCall)},
      {"gpt-oss",
       absl::StrCat("<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant<|channel|>commentary "
                    "to=functions.look <|constrain|>json<|message|>",
                    arguments),
       "I should look.", "", "to=functions.look"},
      {"glm-4.6",
       "\n<think>I should look.</think>\nOne moment.\n<tool_call>look\n<arg_key>where</arg_key>\n"
       "<arg_value>here & there</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
       "I should look.", "One moment.",
       "<tool_call>look\n<arg_key>where</arg_key>\n<arg_value>here & there</arg_value>"},
      {"deepseek-v3.1",
       absl::StrCat("One moment.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>", arguments,
                    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
       "", "One moment.", "<｜tool▁call▁begin｜>look<｜tool▁sep｜>", /*tells=*/false},
      {"kimi-k2",
       absl::StrCat("One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0"
                    "<|tool_call_argument_begin|>",
                    arguments, "<|tool_call_end|><|tool_calls_section_end|>"),
       "", "One moment.", "<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>"},
      {"llama-3.1", absl::StrCat(R"({"name": "look", "parameters": )", arguments, "}"), "", "",
       R"({"name": "look", "parameters": )"},
      {"minimax-m2",
       "I should look.\n</think>\n\nOne moment.\n<minimax:tool_call>\n<invoke name=\"look\">\n"
       "<parameter name=\"where\">here & there</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n"
       "</minimax:tool_call>",
       "I should look.", "One moment.", "<parameter name=\"where\">here & there</parameter>"},
      {"mistral-small-3.2", absl::StrCat("One moment.[TOOL_CALLS]look[CALL_ID]call00001[ARGS]", arguments), "",
       "One moment.", "[TOOL_CALLS]look[CALL_ID]call00001[ARGS]"},
  };
}

// Calls that came and their results go back as they were, and the model reads them in its own words.
TEST(PublishedTemplates, OfEveryFamilyGiveCallsAndTakeThemBack) {
  for (const PublishedCase& published : PublishedCases()) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", published.file, ".jinja"));
    const std::string chat_template = testing::ReadFileOrDie(path);
    TalkingService calling(chat_template, published.raw);
    const Json called = calling.Ask(Question());
    ASSERT_TRUE(called.contains("message")) << published.file;
    const Json& message = called["message"];
    EXPECT_EQ(called["finish_reason"], "tool_calls") << published.file;
    EXPECT_EQ(message.value("reasoning_content", ""), published.reasoning) << published.file;
    EXPECT_EQ(message["content"].is_null() ? Json("") : message["content"], published.content) << published.file;
    EXPECT_EQ(absl::StrContains(calling.Prompt(), "look"), published.tells) << published.file;
    ASSERT_EQ(message.value("tool_calls", Json::array()).size(), 1u) << published.file << message;
    const Json& call = message["tool_calls"][0];
    EXPECT_EQ(call["function"]["name"], "look");
    EXPECT_EQ(Json::parse(call["function"]["arguments"].get<std::string>()),
              Json::parse(R"({"where": "here & there", "days": 3})"))
        << published.file;

    Json messages = Question();
    messages.push_back(message);
    messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "A tree."}});
    calling.Ask(messages);
    EXPECT_THAT(calling.Prompt(), HasSubstr(published.history)) << published.file;
    EXPECT_THAT(calling.Prompt(), HasSubstr("A tree.")) << published.file;
  }
}

// It adds the description to a text, as gpt-oss does.
TEST(PublishedHermes, IsToldOfAToolWithoutADescription) {
  SHARED_FILE_OR_SKIP(path, "data/templates/hermes-3.jinja");
  TalkingService service(testing::ReadFileOrDie(path), "A tree.");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "look"}}])");
  EXPECT_EQ(service.Ask(Question(), Json{{"tools", tools}})["message"]["content"], "A tree.");
  EXPECT_THAT(service.Prompt(), HasSubstr(R"("name": "look")"));
}

TEST(PublishedQwen, ThinksOrNot) {
  SHARED_FILE_OR_SKIP(path, "data/templates/qwen3.5.jinja");
  const std::string chat_template = testing::ReadFileOrDie(path);
  TalkingService answering(chat_template, "Now I know.\n</think>\n\nA tree is here.");
  const Json answered = answering.Ask(Question());
  EXPECT_EQ(answered["finish_reason"], "stop");
  EXPECT_EQ(answered["message"]["reasoning_content"], "Now I know.");
  EXPECT_EQ(answered["message"]["content"], "A tree is here.");
  EXPECT_THAT(answering.Prompt(), ::testing::EndsWith("<|im_start|>assistant\n<think>\n"));

  TalkingService plain(chat_template, "A tree.");
  const Json said = plain.Ask(Question(), Json{{"chat_template_kwargs", Json{{"enable_thinking", false}}}});
  EXPECT_EQ(said["message"]["content"], "A tree.");
  EXPECT_FALSE(said["message"].contains("reasoning_content"));
  EXPECT_THAT(plain.Prompt(), ::testing::EndsWith("<think>\n\n</think>\n\n"));
}

}  // namespace
}  // namespace stagecoach
