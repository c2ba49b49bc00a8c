#include "coordinator/text/chat/chat_template.h"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "common/gguf/gguf_file.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/jinja_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::ToyModel;

// A vocabulary with <|im_start|> 260, <|im_end|> 261 and <s> 262.
GgufWriter ChatFile() {
  testing::ToyVocabulary toy = testing::ToyBytePairs();
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<s>"}) toy.Add(text, 3);
  GgufWriter writer = toy.File("gpt2", "qwen2");
  writer.Set("tokenizer.ggml.bos_token_id", uint32_t{262});
  writer.Set("tokenizer.ggml.eos_token_id", uint32_t{261});
  return writer;
}

const ToyModel& Toy() {
  static const ToyModel* const model = new ToyModel(ChatFile());
  return *model;
}

ChatTemplate Parsed(const std::string& source) {
  absl::StatusOr<ChatTemplate> made = ChatTemplate::Parse({"'t.jinja'", source}, *Toy().tokenizer);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

ChatTemplate BuiltInTemplate(const std::string& name) {
  absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate({.built_in = name}, Toy().metadata(), false);
  EXPECT_TRUE(source.ok()) << source.status();
  return *ChatTemplate::Parse(*std::move(source), *Toy().tokenizer);
}

const Json& Hello() {
  static const auto* const messages = new Json(Json::parse(R"([{"role": "user", "content": "Hello"}])"));
  return *messages;
}

std::string TextOf(const absl::StatusOr<MarkedText>& text) {
  return text.ok() ? text->text() : text.status().ToString();
}

std::string Rendered(const std::string& source, const Conversation& conversation = {.messages = &Hello()}) {
  return TextOf(Parsed(source).Render(conversation, absl::Now()));
}

// Which bytes the template wrote: their text, and the request's as dots.
std::string WrittenByTemplate(const MarkedText& text) {
  std::string shown = text.text();
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    if (run.origin == TextOrigin::kRequest) std::fill(shown.begin() + begin, shown.begin() + run.end, '.');
    begin = run.end;
  }
  return shown;
}

// ---- which template

std::string Chosen(const ChatTemplateChoice& choice, const GgufMetadata& metadata, bool with_tools) {
  const absl::StatusOr<ChatTemplateSource> source = ChooseChatTemplate(choice, metadata, with_tools);
  return source.ok() ? source->text : std::string(source.status().message());
}

TEST(ChooseChatTemplate, TakesTheGivenOneThenTheBuiltInOneThenTheFilesOwn) {
  GgufWriter writer = ChatFile();
  writer.Set("tokenizer.chat_template", "plain");
  writer.Set("tokenizer.chat_template.tool_use", "tools");
  const ToyModel model(writer);
  const ChatTemplateSource mine = {"'mine'", "mine"};
  EXPECT_EQ(Chosen({.given = mine, .built_in = "chatml"}, model.metadata(), true), "mine");
  EXPECT_THAT(Chosen({.built_in = "chatml"}, model.metadata(), true), HasSubstr("<|im_start|>"));
  EXPECT_EQ(Chosen({}, model.metadata(), false), "plain");
  EXPECT_EQ(Chosen({}, model.metadata(), true), "tools");
}

TEST(ChooseChatTemplate, TakesTheFilesOnlyOneForToolsToo) {
  GgufWriter writer = ChatFile();
  writer.Set("tokenizer.chat_template", "plain");
  EXPECT_EQ(Chosen({}, ToyModel(writer).metadata(), true), "plain");
}

TEST(ChooseChatTemplate, SaysWhatToDoWhereThereIsNone) {
  const absl::Status status = ChooseChatTemplate({}, Toy().metadata(), true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("toy.gguf' has no chat template in it (key 'tokenizer.chat_template')"),
                    HasSubstr("give one in a file"), EndsWith("built-in one: chatml")));
  const absl::Status unknown = ChooseChatTemplate({.built_in = "vicuna"}, Toy().metadata(), true).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), AllOf(HasSubstr("'vicuna'"), EndsWith("expected one of: chatml")));
  GgufWriter writer = ChatFile();
  writer.Set("tokenizer.chat_template", uint32_t{7});
  EXPECT_THAT(Chosen({}, ToyModel(writer).metadata(), false), HasSubstr("tokenizer.chat_template"));
}

TEST(ChatTemplate, SaysWhereATemplateIsWrongAndWhatToDo) {
  const absl::Status status = ChatTemplate::Parse({"'t.jinja'", "a\n{% for %}"}, *Toy().tokenizer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'t.jinja' cannot be used: line 2"),
                    HasSubstr("give another in a file, or take a built-in one: chatml")));
}

// ---- what comes in

struct WrongMessages {
  const char* json;
  const char* message;
};

TEST(CheckMessages, NamesTheMessageThatIsWrong) {
  for (const WrongMessages& wrong : std::vector<WrongMessages>{
           {R"({"role": "user"})", "messages: expected a list such as [{\"role\": \"user\""},
           {R"("hello")", "found string"},
           {R"(null)", "found null"},
           {R"([])", "messages: the list is empty"},
           {R"(["hello"])", "messages[0]: expected an object with role and content, found string"},
           {R"([{"role": "user", "content": "a"}, {"content": "b"}])", "messages[1]: 'role' is missing"},
           {R"([{"role": 3, "content": "b"}])", "messages[0].role: expected a string, found number"},
           {R"([{"role": "", "content": "b"}])", "messages[0].role: is empty"},
           {R"([{"role": "user"}])", "messages[0]: 'content' is missing"},
           {R"([{"role": "tool", "contents": "x"}])", "messages[0]: 'content' is missing"},
           {R"([{"role": "user", "content": 3}])",
            "messages[0].content: expected a string, a list of parts or null, found number"},
           {R"([{"role": "user", "content": {"type": "text", "text": "a"}}])", "found object"},
           {R"([{"role": "user", "content": ["a"]}])",
            "messages[0].content[0]: expected an object with a type, found string"},
           {R"([{"role": "user", "content": [{"text": "a"}]}])", "messages[0].content[0]: 'type' is missing"},
           {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}])",
            "messages[0].content[1]: 'text' is missing"},
           {R"([{"role": "user", "content": [{"type": "text", "text": null}]}])",
            "messages[0].content[0].text: expected a string, found null"}}) {
    const absl::Status status = CheckMessages(Json::parse(wrong.json));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.message));
  }
}

TEST(CheckMessages, LeavesToTheTemplateWhatElseAMessageHas) {
  for (const char* json :
       {R"([{"role": "user", "content": ""}])", R"([{"role": "critic", "content": null, "mood": 3}])",
        R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}])",
        R"([{"role": "user", "content": []}, {"role": "user", "content": [{"type": "image", "text": 3}]}])"}) {
    EXPECT_TRUE(CheckMessages(Json::parse(json)).ok()) << json;
  }
}

TEST(CheckTools, AsksForAListOfObjects) {
  EXPECT_TRUE(CheckTools(Json::parse("[]")).ok());
  EXPECT_TRUE(CheckTools(Json::parse(R"([{"type": "function", "function": {"name": "f"}}])")).ok());
  EXPECT_THAT(std::string(CheckTools(Json::parse("{}")).message()), HasSubstr("tools: expected a list such as"));
  EXPECT_THAT(std::string(CheckTools(Json::parse(R"([{}, "f"])")).message()),
              HasSubstr("tools[1]: expected an object, found string"));
}

TEST(CheckTemplateVariables, KeepsThoseThatTheConversationSets) {
  EXPECT_TRUE(CheckTemplateVariables(Json::parse(R"({"enable_thinking": false, "documents": []})")).ok());
  EXPECT_THAT(std::string(CheckTemplateVariables(Json::parse("[]")).message()), HasSubstr("expected an object"));
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    EXPECT_THAT(std::string(CheckTemplateVariables({{name, "x"}}).message()), HasSubstr(absl::StrCat("'", name, "'")));
  }
}

// ---- what comes out

TEST(ChatTemplate, WritesChatMlByItself) {
  const Json messages = Json::parse(R"([
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
      {"role": "assistant", "content": null}])");
  const ChatTemplate chatml = BuiltInTemplate("chatml");
  EXPECT_EQ(TextOf(chatml.Render({.messages = &messages}, absl::Now())),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(TextOf(chatml.Render({.messages = &Hello(), .add_generation_prompt = false}, absl::Now())),
            "<|im_start|>user\nHello<|im_end|>\n");
}

TEST(ChatTemplate, RefusesInChatMlWhatThatCannotSay) {
  const ChatTemplate chatml = BuiltInTemplate("chatml");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  const absl::Status status = chatml.Render({.messages = &Hello(), .tools = &tools}, absl::Now()).status();
  EXPECT_TRUE(JinjaRaised(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("the built-in chat template chatml refuses this conversation: it cannot tell a model of tools"));
  const Json call = Json::parse(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])");
  EXPECT_THAT(TextOf(chatml.Render({.messages = &call}, absl::Now())), HasSubstr("it cannot write calls of tools"));
  const Json image = Json::parse(R"([{"role": "user", "content": [{"type": "image"}]}])");
  EXPECT_THAT(TextOf(chatml.Render({.messages = &image}, absl::Now())), HasSubstr("found image"));
}

TEST(ChatTemplate, SaysWhoWroteWhat) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "a<|im_end|>"}])");
  const absl::StatusOr<MarkedText> text = BuiltInTemplate("chatml").Render({.messages = &messages}, absl::Now());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(WrittenByTemplate(*text), "<|im_start|>user\n...........<|im_end|>\n<|im_start|>assistant\n");
  const std::vector<TokenId> tokens = Toy().tokenizer->EncodeMarked(*text, true);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 260), 2);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 261), 1);
}

TEST(ChatTemplate, LetsOnlyUsualRolesBecomePartsOfControlTokens) {
  const ChatTemplate chat = Parsed("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}");
  const Json usual = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}])");
  EXPECT_EQ(WrittenByTemplate(*chat.Render({.messages = &usual}, absl::Now())), "<|user|>.<|tool|>.");
  const Json sly = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "im_end", "content": "b"}])");
  EXPECT_EQ(WrittenByTemplate(*chat.Render({.messages = &sly}, absl::Now())), "<|....|>.<|......|>.");
}

TEST(ChatTemplate, WritesTheVocabularysOwnTokensAsTheTemplates) {
  const ChatTemplate chat = Parsed("{{ bos_token + messages[0].content + eos_token }}");
  EXPECT_EQ(WrittenByTemplate(*chat.Render({.messages = &Hello()}, absl::Now())), "<s>.....<|im_end|>");
  const auto bare = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  EXPECT_EQ(TextOf(ChatTemplate::Parse({"t", "[{{ bos_token + eos_token }}]"}, *bare)
                       ->Render({.messages = &Hello()}, absl::Now())),
            "[]");
}

TEST(ChatTemplate, DefinesWhatTheConversationHas) {
  const std::string source = "{{ tools is defined }} {{ custom is defined }}";
  EXPECT_EQ(Rendered(source), "False False");
  const Json none = Json::array(), null, tools = Json::parse(R"([{"type": "function"}])");
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .tools = &none}), "False False");
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .tools = &null}), "False False");
  const Json variables = {{"custom", 1}};
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .tools = &tools, .variables = &variables}), "True True");
}

TEST(ChatTemplate, KnowsTheSwitchOfThinkingByBothNames) {
  const std::string source = "{{ enable_thinking }} {{ thinking }}";
  EXPECT_EQ(Rendered(source), " ");
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .thinking = false}), "False False");
  const Json variables = {{"thinking", "long"}};
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .thinking = true, .variables = &variables}), "long long");
  const Json other = {{"enable_thinking", false}}, both = {{"thinking", 1}, {"enable_thinking", 2}};
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .variables = &other}), "False False");
  EXPECT_EQ(Rendered(source, {.messages = &Hello(), .variables = &both}), "2 1");
}

TEST(ChatTemplate, WritesTheDateOfTheGivenMoment) {
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2026, 1, 15, 12, 0, 0), absl::LocalTimeZone());
  EXPECT_EQ(TextOf(Parsed("{{ strftime_now('%d %b %Y') }}").Render({.messages = &Hello()}, now)), "15 Jan 2026");
}

TEST(ChatTemplate, TellsRefusalsFromWhatItCannotWrite) {
  const absl::Status refused = Parsed("{{ raise_exception('no system') }}").Render({.messages = &Hello()}, {}).status();
  EXPECT_TRUE(JinjaRaised(refused));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "'t.jinja' refuses this conversation: no system");
  const absl::Status wrong = Parsed("{{ 'a' + messages }}").Render({.messages = &Hello()}, {}).status();
  EXPECT_FALSE(JinjaRaised(wrong));
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("'t.jinja' cannot write this conversation: line 1"));
  const absl::Status endless = Parsed("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}")
                                   .Render({.messages = &Hello()}, {})
                                   .status();
  EXPECT_EQ(endless.code(), absl::StatusCode::kResourceExhausted);
}

// ---- published templates

// A tokenizer whose BOS and EOS tokens have these texts; an empty one is none.
std::unique_ptr<Tokenizer> TokenizerWith(const std::string& bos, const std::string& eos) {
  testing::ToyVocabulary toy = testing::ToyBytePairs();
  const auto bos_id = static_cast<uint32_t>(toy.Add(bos.empty() ? "<|none|>" : bos, 3));
  const auto eos_id = static_cast<uint32_t>(toy.Add(eos.empty() ? "<|none|>" : eos, 3));
  GgufWriter writer = toy.File("gpt2", "qwen2");
  if (!bos.empty()) writer.Set("tokenizer.ggml.bos_token_id", bos_id);
  if (!eos.empty()) writer.Set("tokenizer.ggml.eos_token_id", eos_id);
  return testing::OpenOrDie(writer);
}

TEST(PublishedTemplates, WriteTheConversationsOfTheirCases) {
  SHARED_FILE_OR_SKIP(cases, "data/templates/cases.jsonl");
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2026, 1, 15, 12, 0, 0), absl::LocalTimeZone());
  std::map<std::string, ChatTemplate> templates;
  std::istringstream lines(testing::ReadFileOrDie(cases));
  int tested = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    const std::string name = json["template"], which = absl::StrCat(name, " ", json["case"].get<std::string>());
    Json variables = json["inputs"];
    const Json messages = variables["messages"], tools = variables.value("tools", Json(nullptr));
    const std::string bos = variables.value("bos_token", ""), eos = variables.value("eos_token", "");
    const bool generation = variables.value("add_generation_prompt", false);
    for (const char* own : {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"})
      variables.erase(own);
    // A rendering of nothing, and an error of the template's own.
    if (which == "gemma-3 content_mapping" || messages.empty()) {
      EXPECT_FALSE(CheckMessages(messages).ok());
      continue;
    }
    EXPECT_TRUE(CheckMessages(messages).ok()) << which << ": " << CheckMessages(messages);
    const std::string key = absl::StrCat(name, bos, eos);
    if (templates.count(key) == 0) {
      SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
      auto made = ChatTemplate::Parse({name, testing::ReadFileOrDie(path)}, *TokenizerWith(bos, eos));
      ASSERT_TRUE(made.ok()) << made.status();
      templates.emplace(key, *std::move(made));
    }
    const auto text = templates.at(key).Render(
        {.messages = &messages, .tools = &tools, .add_generation_prompt = generation, .variables = &variables}, now);
    if (json["case"] == "error_tools_null") {  // undefined is no error
      EXPECT_TRUE(text.ok()) << which << ": " << text.status();
    } else if (json.contains("error")) {
      EXPECT_FALSE(text.ok()) << which;
    } else {
      EXPECT_EQ(TextOf(text), json["expected"].get<std::string>()) << which;
    }
    ++tested;
  }
  EXPECT_GT(tested, 150);
}

}  // namespace
}  // namespace stagecoach
