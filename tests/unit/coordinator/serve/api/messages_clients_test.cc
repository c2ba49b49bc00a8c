// Bodies in the shape of a coding agent's, with texts of our own, for the published templates: what the second turn's
// prompt has in common with the first one's is what the prefix cache can find.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/serve/api/dialects/messages.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/serve/api/toy_service.h"

namespace stagecoach::testing {
namespace {

constexpr char kStampedNow[] = "x-anthropic-billing-header: cc_version=2.1.330.572; cc_entrypoint=sdk-cli;";
constexpr char kStampedLater[] =
    "x-anthropic-billing-header: cc_version=2.1.330.031; cc_entrypoint=sdk-cli; cch=a5145;";

constexpr char kPlainTemplate[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

std::string LongText(const std::string& about, int sentences) {
  std::string text = absl::StrCat("About ", about, ".");
  for (int i = 1; i <= sentences; ++i) absl::StrAppend(&text, "\nRule ", i, ": keep ", about, " short & clear.");
  return text;
}

// A first turn; `stamp`: null for a version without it.
Json AgentBody(const char* stamp) {
  Json body = Json::parse(
      R"({"model":"m","max_tokens":32000,"stream":true,"thinking":{"type":"adaptive","display":"omitted"},)"
      R"("output_config":{"effort":"high"},"context_management":{"edits":[{"type":"clear_thinking_20251015",)"
      R"("keep":"all"}]},"metadata":{"user_id":"{}"},"system":[],"messages":[{"role":"user","content":[)"
      R"({"type":"text","text":"<system-reminder>\nToday is a day.\n</system-reminder>"},)"
      R"({"type":"text","text":"Say hello"}]},{"role":"system","content":[]}],"tools":[{"name":"Bash",)"
      R"("description":"Runs a command.","input_schema":{"$schema":"https://json-schema.org/draft/2020-12/schema",)"
      R"("type":"object","properties":{"command":{"type":"string","minLength":1,"pattern":"^.+$"},)"
      R"("timeout":{"type":"number","maximum":600000,"exclusiveMinimum":0,"default":1000},)"
      R"("lines":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["command"],)"
      R"("additionalProperties":false}},{"name":"DeferredToolPlaceholder","description":"Stands for others.",)"
      R"("input_schema":{"type":"object"},"defer_loading":true}]})");
  const auto block = [](const std::string& text, bool cached) {
    Json json = {{"type", "text"}, {"text", text}};
    if (cached) json["cache_control"] = {{"type", "ephemeral"}};
    return json;
  };
  if (stamp != nullptr) body["system"].push_back(block(stamp, false));
  body["system"].push_back(block("You are an agent.", true));
  body["system"].push_back(block(LongText("answers", 60), true));
  body["messages"][1]["content"].push_back(block(LongText("agents", 60), true));
  return body;
}

// The turn after that, whose system message has become a text: the model called a tool. The identifier has the length
// that some templates want.
Json AfterACall(Json body) {
  Json& messages = body["messages"];
  messages[1]["content"] = messages[1]["content"][0]["text"].get<std::string>();
  messages.push_back(
      Json::parse(R"({"role":"assistant","content":[{"type":"thinking","thinking":"I can greet.","signature":""},)"
                  R"({"type":"tool_use","id":"toolu0001","name":"Bash","input":{"command":"echo hello"}}]})"));
  messages.push_back(Json::parse(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu0001",)"
                                 R"("content":"hello","cache_control":{"type":"ephemeral"}}]})"));
  return body;
}

// More beside the tool's result, and a system message that is the last.
Json WithAReminder(Json body) {
  Json& messages = body["messages"];
  messages.back()["content"].push_back(Json::parse(R"({"type":"text","text":"<system-reminder>Go on"})"));
  messages.push_back(Json::parse(R"({"role":"system","content":"Be brief."})"));
  return body;
}

// And the one where it answered and is asked again.
Json AfterAnAnswer(Json body) {
  Json& messages = body["messages"];
  messages[1]["content"] = messages[1]["content"][0]["text"].get<std::string>();
  messages.push_back(Json::parse(R"({"role":"assistant","content":[{"type":"text","text":"Hello."}]})"));
  messages.push_back(Json::parse(R"({"role":"user","content":"Again, please"})"));
  return body;
}

// The demo model's tokens under a published template.
struct Agent {
  explicit Agent(const std::string& chat_template) : file(*GgufFile::Open(DemoModelPath())) {
    tokenizer = *Tokenizer::Create(file->metadata());
    ChatTemplateChoice choice;
    choice.given = ChatTemplateSource{.name = "published", .text = chat_template};
    chat = std::make_unique<ChatFormat>(choice, file->metadata(), tokenizer.get());
    model.tokenizer = tokenizer.get();
    model.chat = chat.get();
    model.vocab = tokenizer->vocab_size();
    model.recurrent = true;  // prompts tell where the next turn is likely to part
    model.names = {"demo"};
    model.output_format = model.tool_format = FindOutputFormat(chat_template);
    context.id = "id1";
    context.now = absl::FromUnixSeconds(1700000000);
    context.context_tokens = 100'000;
  }

  GenerationRequest Ask(const Json& body) const {
    const PreparedCall prepared = PrepareCall(kMessagesApi, CompactJson(body), model, context);
    EXPECT_FALSE(prepared.error.has_value()) << prepared.error->message;
    if (prepared.error.has_value()) return {};
    EXPECT_THAT(prepared.call->Begin().bytes, ::testing::StartsWith("event: message_start\n"));
    GenerationRequest request = prepared.call->TakeRequests()[0];
    const BodyAnswer counted = CountTokensBody(CompactJson(body), model, context);
    EXPECT_EQ(counted.body, absl::StrCat("{\"input_tokens\":", request.prompt.size(), "}"));
    return request;
  }

  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> chat;
  ServedModel model;
  CallContext context;
};

int64_t CommonTokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Whatever came before a first turn's answer is found again, but for tokens that are made across the end of it: the
// demo model lacks most templates' control tokens.
void ExpectFoundAgain(const Agent& agent, const GenerationRequest& first, const Json& next, const char* what) {
  constexpr int64_t kAcross = 4;
  ASSERT_GT(first.conversation_tokens, 1000) << what;
  const int64_t common = CommonTokens(first.prompt, agent.Ask(next).prompt);
  const auto parted = absl::MakeConstSpan(first.prompt).subspan(static_cast<size_t>(common), 40);
  EXPECT_GE(common, first.conversation_tokens - kAcross)
      << what << ", which parts at: " << agent.tokenizer->Decode(parted, /*render_control=*/true);
}

// It tells of tools before the user's last message, so that a new question moves them.
constexpr char kMovesTools[] = "mistral-small-3.2";

TEST(MessagesOfAnAgent, FindTheirFirstTurnAgainUnderEveryTemplateThatKnowsTools) {
  for (const char* name : {"glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-3.1", "minimax-m2", kMovesTools,
                           "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    SCOPED_TRACE(name);
    const Agent agent(ReadFileOrDie(path));
    for (const char* stamp : {static_cast<const char*>(nullptr), kStampedNow}) {
      const Json body = AgentBody(stamp), called = AfterACall(body);
      const GenerationRequest first = agent.Ask(body);
      ExpectFoundAgain(agent, first, called, "a call");
      if (name == kMovesTools) continue;
      ExpectFoundAgain(agent, first, AfterAnAnswer(body), "an answer");
      ExpectFoundAgain(agent, first, WithAReminder(called), "a reminder beside a result");
    }
  }
}

// One conversation with reasoning, a call, its result and another question, in the words of each API.
constexpr char kInChat[] =
    R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Say hello"},{"role":"assistant",)"
    R"("content":"One moment.","reasoning_content":"I can greet.","tool_calls":[{"id":"call00001","type":"function",)"
    R"("function":{"name":"Bash","arguments":"{\"command\": \"echo hello\"}"}}]},{"role":"tool","tool_call_id":)"
    R"("call00001","content":"hello"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Again"}],)"
    R"("reasoning_effort":"high","tools":[{"type":"function","function":{"name":"Bash","description":"Runs it.",)"
    R"("parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}],)"
    R"("max_tokens":9,"seed":1})";
constexpr char kInResponses[] =
    R"({"instructions":"Be brief.","input":[{"role":"user","content":"Say hello"},{"type":"reasoning","summary":[],)"
    R"("content":[{"type":"reasoning_text","text":"I can greet."}]},{"type":"message","role":"assistant","content":[)"
    R"({"type":"output_text","text":"One moment."}]},{"type":"function_call","call_id":"call00001","name":"Bash",)"
    R"("arguments":"{\"command\": \"echo hello\"}"},{"type":"function_call_output","call_id":"call00001","output":)"
    R"("hello"},{"role":"assistant","content":"Hello."},{"role":"user","content":[{"type":"input_text","text":)"
    R"("Again"}]}],"reasoning":{"effort":"high"},"tools":[{"type":"function","name":"Bash","description":"Runs it.",)"
    R"("parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}],)"
    R"("max_output_tokens":9,"seed":1})";
constexpr char kInMessages[] =
    R"({"system":"Be brief.","messages":[{"role":"user","content":"Say hello"},{"role":"assistant","content":[)"
    R"({"type":"thinking","thinking":"I can greet.","signature":""},{"type":"text","text":"One moment."},)"
    R"({"type":"tool_use","id":"call00001","name":"Bash","input":{"command":"echo hello"}}]},{"role":"user",)"
    R"("content":[{"type":"tool_result","tool_use_id":"call00001","content":[{"type":"text","text":"hello"}]}]},)"
    R"({"role":"assistant","content":"Hello."},{"role":"user","content":"Again"}],"output_config":{"effort":"high"},)"
    R"("tools":[{"name":"Bash","description":"Runs it.","input_schema":{"type":"object","properties":{"command":)"
    R"({"type":"string"}},"required":["command"]}}],"max_tokens":9,"seed":1})";

TEST(OneConversation, HasTheSameTokensByEveryApi) {
  for (const char* name : {"deepseek-v3.1", "glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-3.1", "minimax-m2",
                           "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    SCOPED_TRACE(name);
    const Agent agent(ReadFileOrDie(path));
    std::vector<GenerationRequest> requests;
    for (const auto& [api, body] :
         {std::pair{&kChatApi, kInChat}, {&kResponsesApi, kInResponses}, {&kMessagesApi, kInMessages}}) {
      const PreparedCall prepared = PrepareCall(*api, body, agent.model, agent.context);
      ASSERT_FALSE(prepared.error.has_value()) << api->name << ": " << prepared.error->message;
      requests.push_back(prepared.call->TakeRequests()[0]);
    }
    for (const GenerationRequest& request : requests) {
      EXPECT_EQ(request.prompt, requests[0].prompt) << agent.tokenizer->Decode(request.prompt, /*render_control=*/true);
      EXPECT_EQ(request.sampling.seed, requests[0].sampling.seed);
      EXPECT_EQ(request.sampling.temperature, requests[0].sampling.temperature);
      EXPECT_EQ(request.max_new_tokens, requests[0].max_new_tokens);
      EXPECT_EQ(request.stop_tokens, requests[0].stop_tokens);
    }
  }
}

TEST(MessagesOfAnAgent, HaveTheSameTokensWhateverTheirStampSays) {
  Agent agent(kPlainTemplate);
  const std::vector<TokenId> without = agent.Ask(AgentBody(nullptr)).prompt;
  EXPECT_EQ(agent.Ask(AgentBody(kStampedNow)).prompt, without);
  EXPECT_EQ(agent.Ask(AgentBody(kStampedLater)).prompt, without);
  agent.model.keep_client_stamp = true;
  const std::vector<TokenId> now = agent.Ask(AgentBody(kStampedNow)).prompt;
  EXPECT_LT(CommonTokens(now, agent.Ask(AgentBody(kStampedLater)).prompt), 100);
  EXPECT_THAT(agent.tokenizer->Decode(now, /*render_control=*/true), HasSubstr(kStampedNow));
}

// Members that nobody knows yet, in every place, and what older and newer versions leave out.
TEST(MessagesOfAnAgent, MayHaveMembersThatNobodyKnows) {
  const Agent agent(kPlainTemplate);
  const Json body = AgentBody(kStampedNow);
  const std::vector<TokenId> prompt = agent.Ask(body).prompt;
  Json more = body;
  more["future"] = {{"a", 1}};
  more["output_config"]["future"] = more["thinking"]["future"] = true;
  more["system"][1]["future"] = more["messages"][0]["future"] = more["messages"][0]["content"][0]["future"] = 1;
  more["tools"][0]["future"] = nullptr;
  EXPECT_EQ(agent.Ask(more).prompt, prompt);
  for (const char* member : {"model", "metadata", "context_management", "output_config", "stream"}) {
    Json less = body;
    less.erase(member);
    less["stream"] = true;
    EXPECT_EQ(agent.Ask(less).prompt, prompt) << member;
  }
}

}  // namespace
}  // namespace stagecoach::testing
