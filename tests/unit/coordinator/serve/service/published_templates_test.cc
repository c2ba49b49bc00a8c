// The published templates of models that think and call tools, before an engine that plays what such a model writes:
// what a client gets, in which calls are still text, and what of it the next turn's prompt has.

#include <mutex>

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

TEST(PublishedQwen, ThinksThenCallsAndReadsWhatCameOfIt) {
  SHARED_FILE_OR_SKIP(path, "data/templates/qwen3.5.jinja");
  const std::string chat_template = testing::ReadFileOrDie(path);
  TalkingService calling(chat_template, absl::StrCat("I should look.\n</think>\n\nOne moment.\n\n", kCall));
  const Json called = calling.Ask(Question());
  EXPECT_EQ(called["message"]["reasoning_content"], "I should look.");
  EXPECT_EQ(called["message"]["content"], absl::StrCat("One moment.\n\n", kCall));
  EXPECT_THAT(calling.Prompt(), ::testing::EndsWith("<|im_start|>assistant\n<think>\n"));
  EXPECT_THAT(calling.Prompt(), HasSubstr("\"name\": \"look\""));

  Json messages = Question();
  messages.push_back(Json::parse(R"({"role": "assistant", "content": "One moment.",
      "reasoning_content": "I should look.", "tool_calls": [{"id": "call1", "type": "function", "function": {
        "name": "look", "arguments": "{\"where\": \"here & there\", \"days\": 3}"}}]})"));
  messages.push_back(Json::parse(R"({"role": "tool", "tool_call_id": "call1", "content": "A tree."})"));
  TalkingService answering(chat_template, "Now I know.\n</think>\n\nA tree is here.");
  const Json answered = answering.Ask(messages);
  EXPECT_EQ(answered["finish_reason"], "stop");
  EXPECT_EQ(answered["message"]["reasoning_content"], "Now I know.");
  EXPECT_EQ(answered["message"]["content"], "A tree is here.");
  EXPECT_THAT(answering.Prompt(),
              HasSubstr(absl::StrCat("<think>\nI should look.\n</think>\n\nOne moment.\n\n", kCall)));
  EXPECT_THAT(answering.Prompt(), HasSubstr("<tool_response>\nA tree.\n</tool_response>"));

  TalkingService plain(chat_template, "A tree.");
  const Json said = plain.Ask(Question(), Json{{"chat_template_kwargs", Json{{"enable_thinking", false}}}});
  EXPECT_EQ(said["message"]["content"], "A tree.");
  EXPECT_FALSE(said["message"].contains("reasoning_content"));
  EXPECT_THAT(plain.Prompt(), ::testing::EndsWith("<think>\n\n</think>\n\n"));
}

TEST(PublishedQwen, CoderDoesNotThink) {
  SHARED_FILE_OR_SKIP(path, "data/templates/qwen3-coder.jinja");
  TalkingService service(testing::ReadFileOrDie(path), absl::StrCat("One moment.\n\n", kCall));
  const Json called = service.Ask(Question());
  EXPECT_EQ(called["message"]["content"], absl::StrCat("One moment.\n\n", kCall));
  EXPECT_FALSE(called["message"].contains("reasoning_content"));
  EXPECT_THAT(service.Prompt(), HasSubstr("<name>look</name>"));
  EXPECT_THAT(service.Prompt(), ::testing::EndsWith("<|im_start|>assistant\n"));
}

}  // namespace
}  // namespace stagecoach
