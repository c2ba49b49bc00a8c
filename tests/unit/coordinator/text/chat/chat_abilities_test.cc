#include "coordinator/text/chat/chat_abilities.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

// What it can, as words.
std::string InWords(const ChatAbilities& can) {
  std::vector<std::string> words;
  const auto add = [&words](bool has, const char* word) {
    if (has) words.emplace_back(word);
  };
  add(can.string_content, "text");
  add(can.typed_content, "parts");
  add(can.null_content, "null");
  add(can.system, "system");
  add(can.late_system, "late");
  add(can.developer, "developer");
  add(can.tools, "tools");
  add(can.parallel_calls, "parallel");
  add(can.arguments == ArgumentsForm::kObject, "object");
  add(can.arguments == ArgumentsForm::kText, "string");
  add(can.reasoning == ReasoningForm::kReasoningContent, "reasoning_content");
  add(can.reasoning == ReasoningForm::kThinking, "thinking");
  add(can.reasoning == ReasoningForm::kReasoning, "reasoning");
  add(can.reasoning == ReasoningForm::kParts, "thinking-parts");
  add(!can.reasoning_with_content_and_calls, "not-all-three");
  return absl::StrJoin(words, " ");
}

std::string AbilitiesOf(const std::string& source) {
  const auto tokenizer = testing::OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  const absl::StatusOr<ChatTemplate> made = ChatTemplate::Parse({"'t.jinja'", source}, *tokenizer);
  return made.ok() ? InWords(ProbeAbilities(*made)) : made.status().ToString();
}

std::string ForEachMessage(const std::string& body) {
  return absl::StrCat("{% for m in messages %}", body, "{% endfor %}");
}

TEST(ChatAbilities, AreAllThereWhereNothingCanBeLearnt) {
  const char* const all = "text parts null system late developer tools parallel";
  EXPECT_EQ(InWords(ChatAbilities()), all);
  EXPECT_EQ(AbilitiesOf("Hello"), all);
  EXPECT_EQ(AbilitiesOf("{{ raise_exception('never') }}"), all);
}

TEST(ChatAbilities, TellFormsOfContentApart) {
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.content }}")), "text system late") << "neither a list nor null as it is";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.content | tojson }}")), "text null system late") << "nor as JSON";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% for p in m.content %}{{ p.text }}{% endfor %}")), "parts system late");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or "
                                       "[] %}{{ p.text }}{% endfor %}{% endif %}")),
            "text parts null system late");
}

TEST(ChatAbilities, TellWhichRolesAreTaken) {
  const std::string write = "{{ m.role }}:{{ m.content or '' }}";
  EXPECT_EQ(AbilitiesOf(ForEachMessage(write)), "text null system late") << "developer is as good as any word";
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.role in ['user', 'system', 'developer'] %}" + write + "{% endif %}")),
            "text null system late developer");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.role != 'system' %}" + write + "{% endif %}")), "text null");
  EXPECT_EQ(AbilitiesOf(ForEachMessage(
                "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}" + write)),
            "text null system");
}

TEST(ChatAbilities, TellHowCallsAreTaken) {
  const auto with_calls = [](const std::string& call) {
    return AbilitiesOf(
        ForEachMessage("{{ m.content or '' }}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}"));
  };
  EXPECT_EQ(with_calls("{{ c.function.arguments | tojson }}"), "text null system late parallel object");
  EXPECT_EQ(with_calls("{% for k, v in c.function.arguments | items %}{{ v }}{% endfor %}"),
            "text null system late parallel object");
  EXPECT_EQ(with_calls("{{ '' + c.function.arguments }}"), "text null system late parallel string");
  EXPECT_EQ(with_calls("{{ c.function.arguments }}"), "text null system late parallel string")
      << "an object would be printed as Python does";
  EXPECT_EQ(
      with_calls("{% if loop.length > 1 %}{{ raise_exception('one') }}{% endif %}{{ c.function.arguments | tojson "
                 "}}"),
      "text null system late object");
  EXPECT_EQ(AbilitiesOf("{{ tools if tools else '' }}" +
                        ForEachMessage("{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
                                       "{{ c.function.arguments | tojson }}{% endfor %}")),
            "text null system late tools parallel object")
      << "tools may be printed as Python does";
  EXPECT_EQ(AbilitiesOf("{{ tools | tojson if tools else '' }}" + ForEachMessage("{{ m.content or '' }}")),
            "text null system late tools");
}

TEST(ChatAbilities, TellWhereReasoningIsRead) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    EXPECT_EQ(AbilitiesOf(ForEachMessage(absl::StrCat("{{ m.", name, " or '' }}{{ m.content or '' }}"))),
              absl::StrCat("text null system late ", name));
  }
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{{ m.thinking or '' }}{{ m.reasoning_content or '' }}{{ m.content or '' }}")),
            "text null system late reasoning_content");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or "
                                       "[] %}{{ p.text or p.thinking }}{% endfor %}{% endif %}")),
            "text parts null system late thinking-parts");
  EXPECT_EQ(AbilitiesOf(ForEachMessage("{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('x') }}"
                                       "{% endif %}{{ m.thinking or '' }}{{ m.content or '' }}")),
            "text null system late thinking not-all-three");
}

TEST(ChatAbilities, CostOneRenderingWhereItHasNoEnd) {
  const absl::Time begin = absl::Now();
  EXPECT_EQ(AbilitiesOf("{{ messages[0].content }}{% if messages | length > 1 %}{% for a in range(100000) %}"
                        "{% for b in range(100000) %}{% endfor %}{% endfor %}{% endif %}"),
            "text null system late developer tools parallel");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

struct Published {
  const char* name;
  const char* abilities;
};

TEST(PublishedTemplates, CanDoWhatTheirProgramsSay) {
  for (const Published& published : std::vector<Published>{
           {"deepseek-v3.1", "text null system late parallel object"},
           {"gemma-3", "text parts system"},
           {"glm-4.6", "text parts system late tools parallel object reasoning_content"},
           {"gpt-oss", "text system developer tools object thinking not-all-three"},
           {"hermes-3", "text null system late tools parallel object"},
           {"kimi-k2", "text parts null system late tools parallel object"},
           {"llama-2", "text system"},
           {"llama-3.1", "text null system late tools object"},
           {"minimax-m2", "text parts system tools parallel object reasoning_content"},
           {"mistral-small-3.2", "text parts null system tools parallel object"},
           {"qwen2.5", "text null system late tools parallel object"},
           {"qwen3", "text system late tools parallel object reasoning_content"},
           {"qwen3-coder", "text null system late tools parallel object"},
           {"smollm3", "text null system"},
       }) {
    SHARED_FILE_OR_SKIP(path, absl::StrCat("data/templates/", published.name, ".jinja"));
    EXPECT_EQ(AbilitiesOf(testing::ReadFileOrDie(path)), published.abilities) << published.name;
  }
}

}  // namespace
}  // namespace stagecoach
