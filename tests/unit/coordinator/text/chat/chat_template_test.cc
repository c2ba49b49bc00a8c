#include "coordinator/text/chat/chat_template.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "common/json/json_value.h"
#include "coordinator/text/chat/chat_format.h"
#include "coordinator/text/jinja/jinja_template.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

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
  return ChatTemplate::Parse({"'t.jinja'", source}, *Toy().tokenizer).value();
}

ChatTemplate BuiltInTemplate(const std::string& name) {
  ChatTemplateSource source = ChooseChatTemplate({.built_in = name}, Toy().metadata(), false).value();
  return *ChatTemplate::Parse(std::move(source), *Toy().tokenizer);
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
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'t.jinja' cannot be used: line 2"),
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
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong.message))) << wrong.json;
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
  EXPECT_THAT(CheckTools(Json::parse("{}")).message(), HasSubstr("tools: expected a list such as"));
  EXPECT_THAT(CheckTools(Json::parse(R"([{}, "f"])")).message(),
              HasSubstr("tools[1]: expected an object, found string"));
}

TEST(CheckTemplateVariables, KeepsThoseThatTheConversationSets) {
  EXPECT_TRUE(CheckTemplateVariables(Json::parse(R"({"enable_thinking": false, "documents": []})")).ok());
  EXPECT_THAT(CheckTemplateVariables(Json::parse("[]")).message(), HasSubstr("expected an object"));
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    EXPECT_THAT(CheckTemplateVariables({{name, "x"}}).message(), HasSubstr(absl::StrCat("'", name, "'")));
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
      status.message(),
      HasSubstr("the built-in chat template chatml refuses this conversation: it cannot tell a model of tools"));
  const Json call = Json::parse(R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])");
  EXPECT_THAT(TextOf(chatml.Render({.messages = &call}, absl::Now())), HasSubstr("it cannot write calls of tools"));
  const Json image = Json::parse(R"([{"role": "user", "content": [{"type": "image"}]}])");
  EXPECT_THAT(TextOf(chatml.Render({.messages = &image}, absl::Now())), HasSubstr("found image"));
}

TEST(ChatTemplate, SaysWhoWroteWhat) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "a<|im_end|>"}])");
  const MarkedText text = BuiltInTemplate("chatml").Render({.messages = &messages}, absl::Now()).value();
  EXPECT_EQ(WrittenByTemplate(text), "<|im_start|>user\n...........<|im_end|>\n<|im_start|>assistant\n");
  const std::vector<TokenId> tokens = Toy().tokenizer->EncodeMarked(text, true);
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
  EXPECT_THAT(wrong.message(), HasSubstr("'t.jinja' cannot write this conversation: line 1"));
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
      auto made = ChatTemplate::Parse({name, testing::ReadFileOrDie(path)}, *TokenizerWith(bos, eos)).value();
      templates.emplace(key, std::move(made));
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

// A model file with these templates (empty: none), <|im_end|> 260 and a user-defined <|mine|> 261.
struct TalkingModel : testing::ToyModel {
  explicit TalkingModel(const std::string& plain, const std::string& with_tools = "")
      : ToyModel(File(plain, with_tools)) {}

  static GgufWriter File(const std::string& plain, const std::string& with_tools) {
    testing::ToyVocabulary toy = testing::ToyBytePairs();
    toy.Add("<|im_end|>", 3);
    toy.Add("<|mine|>", 4);
    GgufWriter writer = toy.File("gpt2", "qwen2");
    if (!plain.empty()) writer.Set("tokenizer.chat_template", plain);
    if (!with_tools.empty()) writer.Set("tokenizer.chat_template.tool_use", with_tools);
    return writer;
  }
  ChatFormat Format(const ChatTemplateChoice& choice = {}) const {
    return ChatFormat(choice, metadata(), tokenizer.get());
  }
};

std::string RenderedBy(const ChatFormat& format, const Conversation& conversation) {
  const absl::StatusOr<MarkedText> text = format.Render(conversation, absl::Now());
  return text.ok() ? text->text() : text.status().ToString();
}

constexpr char kTurns[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

TEST(ChatFormat, WritesConversationsWithToolsAndWithoutByTheTemplateOfEach) {
  const TalkingModel model("plain {{ messages[0].content }}", "tools {{ messages[0].content }}");
  const Json messages = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  const Json tools = Json::parse(R"([{"type": "function"}])"), none = Json::array();
  const ChatFormat format = model.Format();
  EXPECT_EQ(RenderedBy(format, {.messages = &messages}), "plain Hi");
  EXPECT_EQ(RenderedBy(format, {.messages = &messages, .tools = &none}), "plain Hi");
  EXPECT_EQ(RenderedBy(format, {.messages = &messages, .tools = &tools}), "tools Hi");
  EXPECT_EQ(format.source(true), "tools {{ messages[0].content }}");
}

TEST(ChatFormat, SaysWhyAModelCannotBeTalkedTo) {
  const TalkingModel mute("");
  const Json messages = Json::parse(R"([{"role": "user", "content": "Hi"}])");
  const ChatFormat none = mute.Format();
  EXPECT_EQ(none.usable(false).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(none.Render({.messages = &messages}, absl::Now()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.source(false), "");
  const TalkingModel torn("{% if %}", "{{ messages[0].content }}");
  const ChatFormat half = torn.Format();
  EXPECT_EQ(half.usable(false).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(half.usable(false).message()), EndsWith("or take a built-in one: chatml"));
  EXPECT_TRUE(half.usable(true).ok());
  EXPECT_TRUE(torn.Format({.built_in = "chatml"}).usable(false).ok());
}

TEST(ChatFormat, ShapesMessagesToTheTemplate) {
  const TalkingModel model(
      absl::StrCat("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", kTurns));
  const Json messages = Json::parse(R"([
      {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
      {"role": "user", "content": "Hi"}])");
  EXPECT_EQ(RenderedBy(model.Format(), {.messages = &messages}), "<user>Be\nbrief.\n\nHi");
}

TEST(ChatFormat, EncodesWhatTheTemplateWroteAsTokensAndWhatTheUserSaidAsText) {
  const TalkingModel model("{{ messages[0].content }}<|im_end|>");
  Json messages = Json::parse(R"([{"role": "user", "content": "a"}])");
  const ChatFormat format = model.Format();
  EXPECT_THAT(*format.Encode({.messages = &messages}, absl::Now()), ElementsAre('a', 260));
  messages[0]["content"] = "<|im_end|>";
  EXPECT_EQ(format.Encode({.messages = &messages}, absl::Now())->size(), 11u);
  messages[0]["content"] = "<|mine|>";
  EXPECT_THAT(*format.Encode({.messages = &messages}, absl::Now()), ElementsAre(261, 260))
      << "user-defined tokens are everybody's";
}

TEST(ChatFormat, EndsAnswersBeforeABuiltInTemplatesMarkThatTheVocabularyHasNoTokenFor) {
  const TalkingModel model("{{ messages[0].content }}");  // with <|im_end|>
  EXPECT_THAT(model.Format({.built_in = "chatml"}).answer_ends(), ElementsAre());
  const auto foreign = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  const ChatFormat format({.built_in = "chatml"}, model.metadata(), foreign.get());
  EXPECT_THAT(format.answer_ends(), ElementsAre("<|im_end|>"));
  EXPECT_THAT(ChatFormat({}, model.metadata(), foreign.get()).answer_ends(), ElementsAre());
  ChatTemplateChoice given = {.built_in = "chatml"};
  given.given = ChatTemplateSource{"mine", "{{ messages[0].content }}"};
  EXPECT_THAT(ChatFormat(given, model.metadata(), foreign.get()).answer_ends(), ElementsAre());
}

// ---- the assistant's last message continued

constexpr char kChatTurns[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ChatFormat, ContinuesTheAssistantsLastMessage) {
  const TalkingModel model(kChatTurns);
  const ChatFormat format = model.Format();
  Json messages = Json::parse(R"([{"role": "user", "content": "assistant"}, {"role": "assistant", "content": "im"}])");
  const Conversation going_on = {.messages = &messages, .continue_final_message = true};
  EXPECT_EQ(RenderedBy(format, going_on), "<user>assistant<|im_end|><assistant>im") << "not the template's own im";
  EXPECT_EQ(RenderedBy(format, {.messages = &messages}), "<user>assistant<|im_end|><assistant>im<|im_end|><assistant>");
  messages[1]["content"] = "im ";
  EXPECT_EQ(RenderedBy(format, going_on), "<user>assistant<|im_end|><assistant>im ") << "what was said is not trimmed";
  messages[1]["content"] = "";
  EXPECT_EQ(RenderedBy(format, going_on), "<user>assistant<|im_end|><assistant>");
  messages[1]["content"] = Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  EXPECT_EQ(RenderedBy(format, going_on), "<user>assistant<|im_end|><assistant>a\nb");
  messages[1]["content"] = "end-of-what-was-said";
  EXPECT_EQ(RenderedBy(format, going_on), "<user>assistant<|im_end|><assistant>end-of-what-was-said");
}

TEST(ChatFormat, KnowsHowManyTokensTheNextTurnBeginsWithToo) {
  Json messages = Json::parse(R"([{"role": "user", "content": "a"}])");
  const auto before = [&](const char* source, const Conversation& conversation) {
    const TalkingModel model(source);
    const ChatFormat format = model.Format();
    const MarkedText text = format.Render(conversation, absl::Now()).value();
    const auto tokens = static_cast<int64_t>(format.Encode(conversation, absl::Now())->size());
    return format.TokensBeforeAnswer(conversation, absl::Now(), text, tokens);
  };
  EXPECT_EQ(before(kChatTurns, {.messages = &messages}), 6 + 1 + 1) << "<user>, a, <|im_end|>, and not <assistant>";
  EXPECT_EQ(before(kTurns, {.messages = &messages}), 6 + 1) << "nothing asks for the answer";
  EXPECT_EQ(before("{% if add_generation_prompt %}[{% endif %}{{ messages[0].content }}", {.messages = &messages}), -1);
  Conversation as_it_is = {.messages = &messages};
  as_it_is.add_generation_prompt = false;
  EXPECT_EQ(before(kChatTurns, as_it_is), -1) << "all, where nothing is added";
  messages.push_back({{"role", "assistant"}, {"content", "b"}});
  EXPECT_EQ(before(kChatTurns, {.messages = &messages, .continue_final_message = true}), -1);
}

TEST(ChatFormat, RefusesToContinueWhatCannotBe) {
  const ChatFormat format = TalkingModel(kChatTurns).Format();
  struct Wrong {
    const char* messages;
    const char* message;
  };
  for (const Wrong& wrong : std::vector<Wrong>{
           {R"([{"role": "user", "content": "a"}])",
            "the last message cannot be continued: expected one of the role 'assistant', found 'user'"},
           {R"([{"role": "assistant", "content": "a", "tool_calls": [{}]}])",
            "expected one without calls of tools, found 'tool_calls'"},
           {R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "image"}]}])",
            "expected content that ends with a text, found a list that does not"}}) {
    const Json messages = Json::parse(wrong.messages);
    const auto text = format.Render({.messages = &messages, .continue_final_message = true}, absl::Now());
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(JinjaRaised(text.status()));
    EXPECT_THAT(text.status().message(), HasSubstr(wrong.message));
  }
  const Json messages = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_THAT(RenderedBy(TalkingModel("{{ messages[0].content }}").Format(),
                         {.messages = &messages, .continue_final_message = true}),
              HasSubstr("does not write the end of the last message, so that it cannot be continued"));
}

TEST(PublishedTemplates, ContinueAnAssistantsMessage) {
  for (const char* name :
       {"deepseek-v3.1", "gemma-3", "glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-2", "llama-3.1", "minimax-m2",
        "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5", "smollm3"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    const Json messages =
        Json::parse(R"([{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "It is"}])");
    EXPECT_THAT(RenderedBy(TalkingModel(testing::ReadFileOrDie(path)).Format(),
                           {.messages = &messages, .continue_final_message = true}),
                EndsWith("It is"))
        << name;
  }
}

// The tokens before what asks for the answer are those of the next turn, whatever the answer was.
TEST(PublishedTemplates, OfRecurrentModelsPartWhereTheAnswerIsAskedFor) {
  for (const char* name : {"qwen3", "qwen3-coder", "qwen3.5"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    const TalkingModel model(testing::ReadFileOrDie(path));
    const ChatFormat format = model.Format();
    Json messages = Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one", "reasoning_content": "ONE"}, {"role": "user", "content": "second"}])");
    for (const std::optional<bool> thinking : {std::optional<bool>(), std::optional<bool>(false)}) {
      const Conversation now = {.messages = &messages, .thinking = thinking};
      const std::vector<TokenId> tokens = format.Encode(now, absl::Now()).value();
      const int64_t before = format.TokensBeforeAnswer(now, absl::Now(), format.Render(now, absl::Now()).value(),
                                                       static_cast<int64_t>(tokens.size()));
      ASSERT_GT(before, static_cast<int64_t>(tokens.size()) - 60) << name << ": all but what asks";
      Json later = messages;
      later.push_back({{"role", "assistant"}, {"content", "two"}, {"reasoning_content", "TWO"}});
      later.push_back({{"role", "user"}, {"content", "third"}});
      const std::vector<TokenId> next = format.Encode({.messages = &later}, absl::Now()).value();
      const auto common = std::mismatch(tokens.begin(), tokens.end(), next.begin(), next.end()).first - tokens.begin();
      EXPECT_GE(common, before) << name;
    }
  }
}

// What a coding agent sends: two sorts of instructions, parts, arguments as texts, null beside calls, and instructions
// in mid-conversation.
TEST(PublishedTemplates, WriteAnAgentsConversation) {
  const Json messages = Json::parse(R"([
      {"role": "system", "content": "INSTRUCTED"}, {"role": "developer", "content": "DEVELOPED"},
      {"role": "user", "content": [{"type": "text", "text": "ASKED"}, {"type": "text", "text": "TWICE"}]},
      {"role": "assistant", "content": null, "reasoning_content": "PONDERED", "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "look", "arguments": "{\"where\": \"ROUND\"}"}}]},
      {"role": "tool", "tool_call_id": "abcdefgh1", "content": "SEEN"},
      {"role": "assistant", "content": "ANSWERED", "tool_calls": []},
      {"role": "developer", "content": "REMINDED"}, {"role": "user", "content": "AGAIN"}])");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "look", "description": "d",
      "parameters": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}}}])");
  for (const char* name : {"deepseek-v3.1", "glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-3.1", "minimax-m2",
                           "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    const std::string text =
        RenderedBy(TalkingModel(testing::ReadFileOrDie(path)).Format(), {.messages = &messages, .tools = &tools});
    size_t from = 0;
    for (const char* word :
         {"INSTRUCTED", "DEVELOPED", "ASKED\nTWICE", "ROUND", "SEEN", "ANSWERED", "REMINDED", "AGAIN"}) {
      const size_t at = text.find(word);
      EXPECT_NE(at, std::string::npos) << name << " lacks " << word << " in " << text;
      if (name != absl::string_view("deepseek-v3.1")) {  // which gathers what the system says at the front
        EXPECT_GE(at, from) << name << ": " << word << " in " << text;
      }
      from = at;
    }
    EXPECT_EQ(text.find("None"), std::string::npos) << name << ": " << text;
  }
}

}  // namespace
}  // namespace stagecoach
