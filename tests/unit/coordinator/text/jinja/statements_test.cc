#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace stagecoach {
namespace {

using testing::Render;

TEST(JinjaWhiteSpace, IsTakenAwayAroundBlocksAndCommentsButNotAroundExpressions) {
  EXPECT_EQ(Render("a\n  {% if true %}  \nb\n  {% endif %}\nc\n"), "a\n  \nb\nc");
  EXPECT_EQ(Render("{% if true %}\nb\n{% endif %}\n"), "b\n");
  EXPECT_EQ(Render("x\n  {# comment #}\ny"), "x\ny");
  EXPECT_EQ(Render("x\n  {{ 1 }}\n  y"), "x\n  1\n  y");
  EXPECT_EQ(Render("a  {% if true %} b {% endif %}  c"), "a   b   c");
  EXPECT_EQ(Render("{% if true %}\n   {% if true %}a{% endif %}\n{% endif %}"), "a");
}

TEST(JinjaWhiteSpace, GoesWhereASignSaysSo) {
  EXPECT_EQ(Render("a \n {%- if true -%} \n b \n {%- endif -%} \n c"), "abc");
  EXPECT_EQ(Render("a \n {{- 1 -}} \n b {#- x -#} c"), "a1bc");
  EXPECT_EQ(Render("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(Render("a\xE2\x80\x83{{- 1 }}"), "a1");
}

TEST(JinjaWhiteSpace, EndsLinesAsUnixDoes) {
  EXPECT_EQ(Render("a\r\nb\rc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(Render("{{ 1 }}\n"), "1");
  EXPECT_EQ(Render("\n"), "");
}

TEST(JinjaWhiteSpace, AndTagsStayInRawText) {
  EXPECT_EQ(Render("{% raw %}{{ x }}{% if %}{% endraw %}!"), "{{ x }}{% if %}!");
  EXPECT_EQ(Render("a {%- raw -%} {{ {%- endraw -%} b"), "a{{b");
}

TEST(JinjaLoops, KnowWhereTheyAre) {
  EXPECT_EQ(Render("{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
                   "loop.first }}{{ loop.last }}{{ loop.length }}"
                   "{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}"),
            "1032TrueFalse3b;2121FalseFalse3ac;3210FalseTrue3b;");
  EXPECT_EQ(Render("{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ "
                   "loop.cycle('a', 'b') }}{{ loop.changed(1) }}{% endfor %}"),
            "FalseTrueaTrueTrueFalsebFalse");
}

TEST(JinjaLoops, CountOnlyWhatPassesTheirCondition) {
  EXPECT_EQ(
      Render("{% for x in range(6) if x % 2 %}{{ x }}{{ loop.index }}{{ loop.last }}{{ loop.nextitem }};{% endfor %}"),
      "11False3;32False5;53True;");
  EXPECT_EQ(
      Render("{% for x in [] %}a{% else %}none{% endfor %}{% for x in [1] if x > 1 %}a{% else %}none{% endfor %}"),
      "nonenone");
}

TEST(JinjaLoops, HaveTheirOwnVariables) {
  EXPECT_EQ(Render("{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}"), "01020");
  EXPECT_EQ(Render("{% for m in [{'f': 1}] %}{% set m = m.f %}{{ m }}{% endfor %}[{{ m }}]"), "1[]");
  EXPECT_EQ(Render("{% for i in [1, 2] %}{% set a = i %}{% for j in [1] %}{{ a }}{{ loop.length }}{% set a = 9 %}{% "
                   "endfor %}{{ a }}{{ loop.length }}{% endfor %}"),
            "11122122");
  EXPECT_EQ(Render("{% for m in m.list %}{{ m }}{% endfor %}", R"({"m": {"list": [1, 2]}})"), "12");
  EXPECT_EQ(Render("{% set ns = namespace(n=0, l=[]) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% set ns.new = i "
                   "%}{% endfor %}{{ ns.n }}{{ ns.new }}{{ ns['n'] }}[{{ ns.q }}]"),
            "323[]");
  EXPECT_EQ(Render("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
}

TEST(JinjaLoops, StopAndGoOn) {
  EXPECT_EQ(Render("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif "
                   "%}{{ x }}{% endfor %}"),
            "023");
}

TEST(JinjaLoops, HaveTheirElseWhenNoRoundCameToItsEnd) {
  EXPECT_EQ(Render("{% for x in [1] %}{% break %}{% else %}a{% endfor %}{% for x in [1, 2] %}{% continue %}{% else "
                   "%}b{% endfor %}"
                   "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}c{% endfor %}"),
            "ab");
}

TEST(JinjaLoops, UnpackAndGoThroughAnything) {
  EXPECT_EQ(Render("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k in {'x': 1} %}{{ k "
                   "}}{% endfor %}{% for c in 'é!' %}{{ c }},{% endfor %}"),
            "123xé,!,");
  EXPECT_EQ(testing::RenderError("{% for a, b in [[1]] %}{% endfor %}").message(), "line 1: 1 values for 2 variables");
  EXPECT_EQ(testing::RenderError("\n{% for a in none %}{% endfor %}").message(), "line 2: a NoneType is not iterable");
}

TEST(JinjaMacros, GiveTextBack) {
  EXPECT_EQ(Render("{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ d }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ "
                   "m(b=5) }} {{ m('x')|upper }} {{ m(1) is string }}"),
            "121 123 5 X2X True");
  EXPECT_EQ(Render("{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}"), "False");
  EXPECT_EQ(testing::RenderError("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}").message(),
            "line 1: macro 'm' takes at most 1 arguments, not 2");
  EXPECT_EQ(testing::RenderError("{% macro m(a) %}{% endmacro %}{{ m(q=2) }}").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JinjaMacros, SeeTheTopLevelAndNotTheLoopThatCallsThem) {
  EXPECT_EQ(Render("{% macro m() %}[{{ x }}{{ i }}]{% endmacro %}{% set x = 1 %}{{ m() }}{% for i in [7] %}{% set x = "
                   "2 %}{{ m() }}{% endfor %}{% set x = 3 %}{{ m() }}"),
            "[1][1][3]");
  EXPECT_EQ(Render("{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}"), "51");
  EXPECT_EQ(Render("{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ m() }}{{ m() "
                   "}}{{ ns.n }}"),
            "2");
  EXPECT_EQ(Render("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}"), "543210");
  EXPECT_EQ(Render("{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}[{{ m }}]"), "12[]");
}

TEST(JinjaBlocks, HaveScopesOfTheirOwn) {
  EXPECT_EQ(Render("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"), "21");
  EXPECT_EQ(Render("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% set y | upper | trim %} b {% endset %}{{ y }}"), "a1B");
  EXPECT_EQ(Render("{% filter trim %}  a {% endfilter %}|{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}"),
            "a|3");
  EXPECT_EQ(Render("{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(3) %}{{ y }}!{% endcall %}"), "<3!>");
  EXPECT_EQ(Render("{% set a, b = 1, 2 %}{{ b }}{{ a }}{% if false %}{% elif true %}e{% else %}f{% endif %}{% if a "
                   "%}{% endif %}"),
            "21e");
}

TEST(JinjaFunctions, AreThere) {
  EXPECT_EQ(Render("{{ range(3)|list }}{{ range(1, 3)|list }}{{ range(5, 0, -2)|list }}{{ dict(a=1) }}"),
            "[0, 1, 2][1, 2][5, 3, 1]{'a': 1}");
  EXPECT_EQ(Render("{{ strftime_now('%Y-%m-%d %H:%M %A %d %B') }}[{{ strftime_now('') }}]"),
            "2026-01-15 12:00 Thursday 15 January[]");
}

}  // namespace
}  // namespace stagecoach
