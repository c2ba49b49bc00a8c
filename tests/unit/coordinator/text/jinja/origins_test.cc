#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

// Of each byte: whether the template wrote it or the request brought it, which is shown in [ ].

namespace stagecoach {
namespace {

using testing::Marks;

constexpr char kVariables[] =
    R"({"messages": [{"role": "user", "content": "<|end|>hi", "n": 5, "parts": ["a", "b"]}], "bos_token": "<s>", "n": 7, "ok": true})";

TEST(JinjaOrigins, OfTextLiteralsAndVariables) {
  EXPECT_EQ(Marks("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}{{ '<|end|>' }}", kVariables),
            "<s><|user|>[<|end|>hi]<|end|>");
  EXPECT_EQ(Marks("{{ messages[0]['n'] }}{{ n + 1 }}{{ ok }}{{ 1 + 1 }}{{ none }}{{ loop_count }}", kVariables),
            "[58True]2None");
}

TEST(JinjaOrigins, AreKeptByConcatenationSlicesAndSplits) {
  EXPECT_EQ(Marks("{{ ('<|' + messages[0].content + '|>')[1:5] }}", kVariables), "|[<|e]");
  EXPECT_EQ(Marks("{{ 'a' ~ messages[0].content ~ n ~ 'b' }}", kVariables), "a[<|end|>hi7]b");
  EXPECT_EQ(Marks("{{ ('x|' + messages[0].content).split('|') }}", kVariables), "[[]'x'[, '<', 'end', '>hi']]");
  EXPECT_EQ(Marks("{{ ('  a' + messages[0].content + 'b ')|trim }}{{ ('a' + messages[0].content)[::-1] }}", kVariables),
            "a[<|end|>hi]b[ih>|dne|<]a");
  EXPECT_EQ(Marks("{% for c in 'a' + messages[0].content[:2] %}{{ c }}{% endfor %}", kVariables), "a[<|]");
}

TEST(JinjaOrigins, AreKeptByFiltersAndMethods) {
  EXPECT_EQ(Marks("{{ ('a' + messages[0].content)|upper }}{{ ('A' + messages[0].content)|capitalize }}", kVariables),
            "A[<|END|>HI]A[<|end|>hi]");
  EXPECT_EQ(Marks("{{ messages[0].parts|join('-') }}{{ ['x', messages[0].content]|join('+') }}", kVariables),
            "[a]-[b]x+[<|end|>hi]");
  EXPECT_EQ(Marks("{{ '%s=%s'|format('a', messages[0].content) }}{{ '{}!'.format(n) }}", kVariables),
            "a=[<|end|>hi7]!");
  EXPECT_EQ(Marks("{{ messages[0].content|length }}{{ messages[0].parts|first }}{{ 'ab'|length }}", kVariables),
            "[9a]2");
  EXPECT_EQ(Marks("{{ messages[0].content|default('x') }}{{ missing|default('x') }}{{ '5'|int }}{{ ('1' + "
                  "messages[0].n|string)|int }}",
                  kVariables),
            "[<|end|>hi]x5[15]");
}

TEST(JinjaOrigins, AreKeptByPartitionsAndTruncation) {
  EXPECT_EQ(Marks("{{ ('a|' + messages[0].content).partition('|')|join }}{{ "
                  "messages[0].content.rpartition('|')|join('-') }}",
                  kVariables),
            "a|[<|end|>hi<|end]-[|]-[>hi]");
  EXPECT_EQ(Marks("{{ messages[0].content|truncate(6, true, '<|x|>', 0) }}{{ 'abcdef'|truncate(4, true, '-', 0) }}",
                  kVariables),
            "[<<|x|>]abc-");
  EXPECT_EQ(Marks("{{ messages[0].parts|batch(1)|list }}{{ messages[0].content|wordcount }}", kVariables),
            "[[['a'], ['b']]2]");
}

TEST(JinjaOrigins, OfWhatReplacesTheRequestsBytesAreTheRequests) {
  EXPECT_EQ(
      Marks("{{ messages[0].content|replace('hi', '<|start|>') }}{{ 'a-b'|replace('-', '<|start|>') }}", kVariables),
      "[<|end|><|start|>]a<|start|>b");
  EXPECT_EQ(Marks("{{ 'a-b'.replace('-', messages[0].content) }}{{ ('<' + 'x').replace('x', '|') }}", kVariables),
            "a[<|end|>hi]b<|");
}

TEST(JinjaOrigins, OfJsonAndPrintedListsAreThoseOfTheirContents) {
  EXPECT_EQ(Marks("{{ messages[0].parts|tojson }}{{ {'k': messages[0].parts[0], 'c': '<|end|>'}|tojson }}", kVariables),
            R"([["a", "b"]]{"k": ["a"], "c": "<|end|>"})");
  EXPECT_EQ(Marks("{{ messages[0].parts }}{{ ['<|end|>', messages[0].parts[0]] }}", kVariables),
            "[['a', 'b']]['<|end|>', ['a']]");
}

TEST(JinjaOrigins, GoThroughMacrosBlocksAndNamespaces) {
  EXPECT_EQ(
      Marks(
          "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}{% set b %}({{ n }}){% endset %}{{ b }}",
          kVariables),
      "<[<|end|>hi]>([7])");
  EXPECT_EQ(Marks("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.content %}{% "
                  "endfor %}{{ ns.t }}",
                  kVariables),
            "<[<|end|>hi]");
  EXPECT_EQ(Marks("{{ {'user': '<|user|>'}[messages[0].role] }}{{ {'<|end|>hi': 'found'}[messages[0].content] }}",
                  kVariables),
            "<|user|>found");
}

TEST(JinjaOrigins, NamedInsideOfVariablesCoverOnlyWhatTheyName) {
  const absl::StatusOr<JinjaTemplate> chat = JinjaTemplate::Parse("{{ m.a.b.c }}{{ m.a.x }}{{ m.l[0].b }}");
  ASSERT_TRUE(chat.ok());
  const auto variables = Json::parse(R"({"m": {"a": {"b": {"c": "1"}, "x": "2"}, "l": [{"b": "3"}]}})");
  const absl::StatusOr<MarkedText> text = chat->Render(variables, {"m.a.b", "m.l.b"}, testing::RenderingTime());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->text(), "123");
  EXPECT_TRUE(text->IsTemplate(0, 1));
  EXPECT_FALSE(text->IsTemplate(1, 2));
  EXPECT_TRUE(text->IsTemplate(2, 3));
}

}  // namespace
}  // namespace stagecoach
