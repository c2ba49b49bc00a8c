#include "coordinator/text/chat/chat_format.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_writer.h"
#include "common/json/json_value.h"
#include "coordinator/text/jinja/jinja_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
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
    EXPECT_THAT(std::string(text.status().message()), ::testing::HasSubstr(wrong.message));
  }
  const Json messages = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_THAT(RenderedBy(TalkingModel("{{ messages[0].content }}").Format(),
                         {.messages = &messages, .continue_final_message = true}),
              ::testing::HasSubstr("does not write the end of the last message, so that it cannot be continued"));
}

TEST(PublishedTemplates, ContinueAnAssistantsMessage) {
  for (const char* name :
       {"deepseek-v3.1", "gemma-3", "glm-4.6", "gpt-oss", "hermes-3", "kimi-k2", "llama-2", "llama-3.1", "minimax-m2",
        "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder", "smollm3"}) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", name, ".jinja"));
    const Json messages =
        Json::parse(R"([{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "It is"}])");
    EXPECT_THAT(RenderedBy(TalkingModel(testing::ReadFileOrDie(path)).Format(),
                           {.messages = &messages, .continue_final_message = true}),
                EndsWith("It is"))
        << name;
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
                           "mistral-small-3.2", "qwen2.5", "qwen3", "qwen3-coder"}) {
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
