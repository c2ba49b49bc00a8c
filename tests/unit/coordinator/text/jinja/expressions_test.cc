#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace stagecoach {
namespace {

using testing::Render;

TEST(JinjaExpressions, ReadAnAttributeAsAMethodFirstAndAnItemAsAKeyFirst) {
  const std::string variables = R"({"spec": {"items": "the key", "other": 1}})";
  EXPECT_EQ(Render("{{ spec['items'] }}", variables), "the key");
  EXPECT_EQ(Render("{% for k, v in spec.items() %}{{ k }}={{ v }};{% endfor %}", variables), "items=the key;other=1;");
  EXPECT_EQ(Render("{{ spec.items is string }}{{ spec.other }}{{ spec['get']('other') }}", variables), "False11");
}

TEST(JinjaExpressions, TakeWhatIsNotThereForUndefined) {
  EXPECT_EQ(Render("[{{ x }}{{ d.a }}{{ d['a'] }}{{ d[1] }}{{ l[7] }}{{ s.foo }}{{ n.foo }}]",
                   R"({"d": {}, "l": [], "s": "x", "n": null})"),
            "[]");
  EXPECT_EQ(Render("{{ x is defined }} {{ x is none }} {{ x is iterable }} {{ x is sequence }} {{ x is mapping }} {{ x "
                   "is string }}"),
            "False False True True False False");
  EXPECT_EQ(
      Render("{{ 1 if x else 2 }}{{ x|length }}{{ 'a' in x }}{% for i in x %}!{% endfor %}[{{ x|trim }}]{{ x ~ 1 }}"),
      "20False[]1");
  EXPECT_EQ(Render("{{ x == y }}{{ x == none }}{{ [x] }}"), "TrueFalse[Undefined]");
  EXPECT_EQ(Render("{{ [1 if false] }}[{{ 1 if false }}]"), "[Undefined][]");
}

TEST(JinjaExpressions, RefuseToDoMoreWithUndefined) {
  for (const char* source : {"{{ x.a }}", "{{ x['a'] }}", "{{ x() }}", "{{ x + 1 }}", "{{ 'a' + x }}", "{{ x - 1 }}",
                             "{{ -x }}", "{{ x[1:] }}", "{{ x < 1 }}", "{{ x|tojson }}", "{{ d.a.b }}", "{{ x * 2 }}",
                             "{{ x|int }}", "{{ x in 'a' }}"}) {
    const absl::Status error = testing::RenderError(source, R"({"d": {}})");
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(std::string(error.message()), ::testing::HasSubstr("is undefined")) << source;
  }
}

TEST(JinjaExpressions, PrintAsPythonDoes) {
  EXPECT_EQ(Render("{{ none }} {{ true }} {{ 5.0 }} {{ 1e-7 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 0.0001 }} {{ "
                   "1.5e300 }} {{ -0.0 }}"),
            "None True 5.0 1e-07 1e+16 123456789012345.0 0.0001 1.5e+300 -0.0");
  EXPECT_EQ(Render("{{ {'a': [1, none, true], 2: 'b'} }} {{ (1,) }} {{ (1, 2) }} {{ () }}"),
            "{'a': [1, None, True], 2: 'b'} (1,) (1, 2) ()");
  EXPECT_EQ(Render(R"({{ ["it's", 'say "x"', 'a"b\'c', 'tab\t\\\n'] }})"),
            R"(["it's", 'say "x"', 'a"b\'c', 'tab\t\\\n'])");
  EXPECT_EQ(Render("{{ ['\\x00\\x7f\\xa0\\u200b\\U0001F600é'] }}"), "['\\x00\\x7f\\xa0\\u200b\U0001F600é']");
  EXPECT_EQ(Render("{{ {'a': none} ~ 1 }} {{ [1.0]|string }} {{ range(3) }} {{ {'a': 1}.items() }} {{ 1, 2 }}"),
            "{'a': None}1 [1.0] range(0, 3) dict_items([('a', 1)]) (1, 2)");
  EXPECT_EQ(Render("{{ n }} {{ m }} {{ f }}", R"({"n": 9223372036854775807, "m": 18446744073709551615, "f": 5.0})"),
            "9223372036854775807 18446744073709551615 5.0");
}

TEST(JinjaExpressions, CompareDeeplyAndNumbersOfAnyKind) {
  EXPECT_EQ(
      Render("{{ a == b }} {{ a == c }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ [1, [2]] == [1.0, [true + 1]] "
             "}} {{ (1,) == [1] }}",
             R"({"a": {"x": [1, {"y": null}], "z": 1}, "b": {"z": 1, "x": [1, {"y": null}]}, "c": {"x": [], "z": 1}})"),
      "True False True True False True False");
  EXPECT_EQ(
      Render("{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 2 >= 2.0 }} {{ 'B' < 'a' }}"),
      "True False True True True True");
  EXPECT_EQ(Render("{{ 1 in [1.0] }} {{ 'b' in 'abc' }} {{ 'a' in {'a': 1} }} {{ 2 not in [1] }} {{ '' in '' }} {{ 1 "
                   "in {1: 2} }} {{ true in {1: 2} }}"),
            "True True True True True True True");
}

TEST(JinjaExpressions, BindAsJinjaBinds) {
  EXPECT_EQ(Render("{{ ' a ' + ' b ' | trim }}"), " a b");
  EXPECT_EQ(Render("{{ not x is defined }} {{ not 1 == 2 }} {{ 'a' + 2 ~ 3 + 'b' }} {{ 2 * 3 ~ 4 }} {{ 1 ~ 2 * 3 }}"),
            "True True a23b 64 16");
  EXPECT_EQ(Render("{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }}"),
            "4 64 -4 2 3.5 0.5");
  EXPECT_EQ(Render("{{ 1 if true else 2 if true else 3 }} {{ 0 or '' or 'c' }} {{ 1 and 'b' }} {{ '' and 1 }}|{{ none "
                   "or none }}"),
            "1 c b |None");
  EXPECT_EQ(Render("{{ 'a' 'b' \"c\" }} {{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1_0.5 }}"),
            "abc 1000 31 3 15 10.5");
  EXPECT_EQ(Render("{{ -1|abs }} {{ 5 is divisibleby 5 }} {{ 5 is not none and true }} {{ [[1, 2]][0][1] }} {{ "
                   "'abc'.upper().lower()[1] }}"),
            "1 True True 2 b");
  EXPECT_EQ(Render("{{ l.0 }} {{ {'a': {'b': 1}}.a.b }} {{ {'a': {'b': 1}}}}", R"({"l": [7]})"), "7 1 {'a': {'b': 1}}");
}

TEST(JinjaExpressions, ChooseByOneConditionAfterAnother) {
  EXPECT_EQ(Render("{{ 1 if true if true }}[{{ 1 if false if true }}][{{ 1 if true if false else 2 }}]"), "1[][2]");
}

TEST(JinjaExpressions, TakeUndefinedForAKeyThatIsNotThere) {
  EXPECT_EQ(Render("{{ x in {'a': 1} }}[{{ {'a': 1}[x] }}]{{ {'a': 1}.get(x, 'no') }}{{ {x: 1}[y] }}"), "False[]no1");
}

TEST(JinjaExpressions, SliceByCharactersAndNeverFail) {
  const std::string variables = R"({"s": "aäb€c😀", "l": [0, 1, 2, 3, 4]})";
  EXPECT_EQ(
      Render("{{ s|length }} {{ s[1] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::2] }} {{ s[9:] }} {{ s[:-4] }}",
             variables),
      "6 ä 😀 äb€ 😀c€bäa abc  aä");
  EXPECT_EQ(
      Render("{{ l[1:] }}{{ l[:2] }}{{ l[-2:] }}{{ l[::-2] }}{{ l[3:1] }}{{ l[10:2:-3] }}{{ l[:] }}{{ l[-100:100] }}",
             variables),
      "[1, 2, 3, 4][0, 1][3, 4][4, 2, 0][][4][0, 1, 2, 3, 4][0, 1, 2, 3, 4]");
  EXPECT_EQ(Render("{{ (1, 2, 3)[1:] }}"), "(2, 3)");
  EXPECT_EQ(testing::ErrorText("{{ l[::0] }}", variables), "line 1: the stride of a slice cannot be 0");
}

TEST(JinjaExpressions, AddStringsListsAndTuples) {
  EXPECT_EQ(
      Render(
          "{{ 'a' + 'b' }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'ab' * 2 }}{{ 2 * [0] }}{{ 'x' * -1 }}{{ true + true }}"),
      "ab[1, 2](1, 2)abab[0, 0]2");
  EXPECT_EQ(testing::ErrorText("{{ 'a' + 1 }}"), "line 1: unsupported operands of +: str and int");
  EXPECT_EQ(testing::ErrorText("{{ 1 // 0 }}"), "line 1: division by zero");
}

TEST(JinjaExpressions, FormatByPercentAndBraces) {
  EXPECT_EQ(
      Render(
          "{{ '%s-%d-%05.2f-%x-%%' % ('a', 3, 2.5, 255) }}|{{ '%-4s|%4s' % ('ab', 'cd') }}|{{ '%(k)s' % {'k': 1} }}"),
      "a-3-02.50-ff-%|ab  |  cd|1");
  EXPECT_EQ(
      Render("{{ '{} {} {{}}'.format(1, 'b') }} {{ '{1}{0}{k}'.format(1, 2, k=3) }} {{ '%s=%s'|format('a', 1) }}"),
      "1 b {} 213 a=1");
}

TEST(JinjaExpressions, ReadEscapesInStrings) {
  EXPECT_EQ(Render(R"({{ 'a\n\t\'\"\\\x41\u00e9\U0001F600\101\q' }})"),
            "a\n\t'\"\\A\xC3\xA9\xF0\x9F\x98\x80"
            "A\\q");
  EXPECT_EQ(Render("{{ 'two\nlines' }}"), "two\nlines");
}

TEST(JinjaExpressions, LetListsAndDictsBeChanged) {
  EXPECT_EQ(Render("{% set l = [1] %}{% set _ = l.append(2) %}{{ l.pop(0) }}{{ l }}{% set _ = l.extend([3, 4]) %}{{ "
                   "l.pop() }}{{ l|length }}"),
            "1[2]42");
  EXPECT_EQ(Render("{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{{ d.pop('a') }}{{ d }}{{ d.get('c') }}{{ "
                   "d.get('c', 5) }}"),
            "1{'b': 2}None5");
}

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
  EXPECT_EQ(testing::ErrorText("{% for a, b in [[1]] %}{% endfor %}"), "line 1: 1 values for 2 variables");
  EXPECT_EQ(testing::ErrorText("\n{% for a in none %}{% endfor %}"), "line 2: a NoneType is not iterable");
}

TEST(JinjaMacros, GiveTextBack) {
  EXPECT_EQ(Render("{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ d }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ "
                   "m(b=5) }} {{ m('x')|upper }} {{ m(1) is string }}"),
            "121 123 5 X2X True");
  EXPECT_EQ(Render("{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}"), "False");
  EXPECT_EQ(testing::ErrorText("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
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
