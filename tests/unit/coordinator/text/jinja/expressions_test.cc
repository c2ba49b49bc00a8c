#include <fstream>
#include <map>

#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
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
    EXPECT_THAT(error, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is undefined"))) << source;
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

TEST(JinjaLoops, StopAndGoOnAndHaveTheirElseWhenNoRoundCameToItsEnd) {
  EXPECT_EQ(Render("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif "
                   "%}{{ x }}{% endfor %}"),
            "023");
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

TEST(JinjaFilters, WriteJsonAsPythonDoes) {
  const std::string variables = R"({"v": {"b": [1, 2.0, true, null, "é\"\n\u0001<>&'/\u007f"], "a": {}, "l": []}})";
  EXPECT_EQ(Render("{{ v | tojson }}", variables),
            "{\"b\": [1, 2.0, true, null, \"é\\\"\\n\\u0001<>&'/\x7f\"], \"a\": {}, \"l\": []}");
  EXPECT_EQ(Render("{{ v.b | tojson(ensure_ascii=true) }}", variables),
            R"([1, 2.0, true, null, "\u00e9\"\n\u0001<>&'/\u007f"])");
  EXPECT_EQ(Render("{{ '😀' | tojson(ensure_ascii=true) }}{{ (1, 2) | tojson }}"), R"("\ud83d\ude00"[1, 2])");
  EXPECT_EQ(Render("{{ v | tojson(indent=2) }}", R"({"v": {"b": [1, {"c": []}], "a": {}}})"),
            "{\n  \"b\": [\n    1,\n    {\n      \"c\": []\n    }\n  ],\n  \"a\": {}\n}");
  EXPECT_EQ(Render("{{ v | tojson(separators=(',', ':'), sort_keys=true) }}", R"({"v": {"b": 1, "a": 2}})"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(Render("{{ {1: 'a', true: 'b', none: 'c', 1.5: 'd'} | tojson }}"),
            R"({"1": "b", "null": "c", "1.5": "d"})");
}

TEST(JinjaFilters, GiveWhatIsMissing) {
  EXPECT_EQ(Render("{{ x|default('a') }}{{ ''|default('a') }}{{ ''|default('a', true) }}{{ none|default('b') }}{{ "
                   "none|d('b', boolean=true) }}[{{ x|default }}]"),
            "aaNoneb[]");
  EXPECT_EQ(Render("[{{ x|items|list }}{{ x|join }}{{ x|list }}{{ x|string }}{{ x|first }}{{ x|upper }}]"), "[[][]]");
}

TEST(JinjaFilters, ChangeText) {
  EXPECT_EQ(Render("{{ ' \xC2\xA0\xE3\x80\x80 a\xE2\x80\x8B ' | trim }}|{{ 'xaxx'|trim('x') }}|{{ 12|trim }}"),
            "a\xE2\x80\x8B|a|12");
  EXPECT_EQ(Render("{{ 'äß'|upper }} {{ 'ÄΣA'|lower }} {{ 'hELLO wORLD'|capitalize }} {{ 'a-b (c) dON\\'t'|title }} {{ "
                   "'don\\'t x2y'.title() }}"),
            "ÄSS äσa Hello world A-B (C) Don't Don'T X2Y");
  EXPECT_EQ(Render("{{ 'aXbX'|replace('X', '-') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'.replace('', '.') }} {{ "
                   "115|replace(1, 2) }}"),
            "a-b- bba .a.b. 225");
  EXPECT_EQ(
      Render("{{ 'a\n\nb\n'|indent }}|{{ 'a\nb'|indent(2, first=true) }}|{{ 'a\n\nb'|indent('> ', blank=true) }}"),
      "a\n\n    b\n|  a\n  b|a\n> \n> b");
  EXPECT_EQ(
      Render(
          "{{ ['a', 1, none]|join('-') }} {{ [{'n': 1}, {'n': 2}]|join(', ', attribute='n') }} {{ 'abc'|join('.') }}"),
      "a-1-None 1, 2 a.b.c");
  EXPECT_EQ(Render("{{ '<a>'|safe }} {{ '<a>'|escape }} {{ 5|string + 'x' }}"), "<a> &lt;a&gt; 5x");
}

TEST(JinjaFilters, MakeListsOfSoManyEach) {
  EXPECT_EQ(Render("{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ []|batch(2, 0)|list }} "
                   "{{ [1]|batch(linecount=3, fill_with='-')|list }} {{ 'abc'|batch(2, none)|list }}"),
            "[[1, 2], [3, 4], [5]] [[1, 2], [3, 'x']] [] [[1, '-', '-']] [['a', 'b'], ['c']]");
  EXPECT_EQ(Render("{{ [1, 2, 3]|batch(0)|list }} {{ [1, 2]|batch(-1)|list }} {{ [1, 2, 3]|batch(2.0)|list }} {{ [1, "
                   "2]|batch('a')|list }} {{ x|batch(2)|list }} {{ [1, 2, 3]|batch(0, 'x')|list }} {{ [1, "
                   "2]|batch(true)|list }}"),
            "[[], [1, 2, 3]] [[1, 2]] [[1, 2], [3]] [[1, 2]] [] [[], [1, 2, 3]] [[1], [2]]");
  EXPECT_EQ(testing::ErrorText("{{ [1]|batch }}"), "line 1: 'batch' needs the argument 'linecount'");
  EXPECT_EQ(testing::ErrorText("{{ [1]|batch(2.5, 'x')|list }}"), "line 1: an integer is needed, not a float");
}

TEST(JinjaFilters, CutTextToALength) {
  const std::string text = "{% set t = 'foo bar baz qux' %}";
  EXPECT_EQ(Render(text + "{{ t|truncate(9) }}|{{ t|truncate(9, true) }}|{{ t|truncate(11) }}|{{ t|truncate(11, false, "
                          "'...', 0) }}"),
            "foo...|foo ba...|foo bar baz qux|foo bar...");
  EXPECT_EQ(Render("{{ 'foobarbaz'|truncate(5, leeway=0) }}|{{ ' abcdefghijk'|truncate(5, leeway=0) }}|{{ "
                   "'abcdefgh'|truncate(3, leeway=0) }}"),
            "fo...|...|...");
  EXPECT_EQ(Render("{% set t = 'é ü ö ä' %}{{ t|truncate(4, leeway=0, end='…') }}|{{ t|truncate(4, true, '…', 0) }}"),
            "é…|é ü…");
  EXPECT_EQ(Render("{{ ''|truncate(3) }}|{{ x|truncate }}|{{ [1, 2]|truncate }}|{{ ('a' * 260)|truncate|length }}|{{ "
                   "('a' * 261)|truncate|length }}"),
            "||[1, 2]|260|255");
  EXPECT_EQ(testing::ErrorText("{{ 'ab'|truncate(2) }}"),
            "line 1: 'truncate': expected a length of at least 3, found 2");
  EXPECT_EQ(testing::ErrorText("{{ 'abcdefgh'|truncate(3, leeway=-1) }}"),
            "line 1: 'truncate': expected a leeway of at least 0");
  EXPECT_EQ(testing::ErrorText("{{ range(300)|truncate }}"), "line 1: 'truncate' needs a string, not a range");
  EXPECT_EQ(testing::ErrorText("{{ 5|truncate }}"), "line 1: a int has no length");
}

TEST(JinjaFilters, CountWords) {
  EXPECT_EQ(Render("{{ 'a b_c, d-e 12 é! ²½ '|wordcount }} {{ ''|wordcount }} {{ 42|wordcount }} {{ x|wordcount }} {{ "
                   "[1, 'ab c']|wordcount }} {{ 'naïve e\xCC\x81\x61 中文 ٣'|wordcount }}"),
            "7 0 1 0 3 5");
}

TEST(JinjaFilters, PartText) {
  EXPECT_EQ(Render("{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ "
                   "'abc'.rpartition('-') }}"),
            "('a', '-', 'b-c') ('a-b', '-', 'c') ('abc', '', '') ('', '', 'abc')");
  EXPECT_EQ(Render("{{ 'aaa'.partition('aa') }} {{ 'aaa'.rpartition('aa') }} {{ ''.partition('x') }} {% set a, b, c = "
                   "'é: ü'.partition(': ') %}{{ c ~ b ~ a }}"),
            "('', 'aa', 'a') ('a', 'aa', '') ('', '', '') ü: é");
  EXPECT_EQ(testing::ErrorText("{{ 'ab'.partition('') }}"), "line 1: an empty separator");
  EXPECT_EQ(testing::ErrorText("{{ 'ab'.rpartition(1) }}"), "line 1: a string is needed, not a int");
}

TEST(JinjaFilters, CutText) {
  EXPECT_EQ(Render("{{ ',a,,b,'.split(',') }} {{ 'a-b-c'.split('-', 1) }} {{ '  a  b '.split() }} {{ ' a  b c "
                   "'.split(none, 1) }} {{ ''.split(',') }}{{ ''.split() }}"),
            "['', 'a', '', 'b', ''] ['a', 'b-c'] ['a', 'b'] ['a', 'b c '] [''][]");
  EXPECT_EQ(Render("{{ 'a-b-c'.rsplit('-', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'aaa'.rsplit('aa') }} {{ "
                   "'x\r\ny\\n'.splitlines() }}"),
            "['a-b', 'c'] [' a b', 'c'] ['a', ''] ['x', 'y']");
  EXPECT_EQ(Render("{{ 'xyaxy'.strip('yx') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'éaé'.lstrip('é') }}"),
            "a|a | a|aé");
  EXPECT_EQ(Render("{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'éabab'.find('b') }} {{ "
                   "'éabab'.rfind('b') }} {{ 'a'.find('x') }} {{ 'aXa'.count('a') }}"),
            "True True 2 4 -1 2");
  EXPECT_EQ(Render("{{ '-'.join(['a', 'b']) }} {{ 'abc'.removeprefix('a') }} {{ '12'.isdigit() }} {{ 'Ab'.isupper() }} "
                   "{{ 'AB'.isupper() }}"),
            "a-b bc True False True");
}

TEST(JinjaFilters, SelectAndSort) {
  const std::string variables = R"({"l": [{"t": "b", "n": 1}, {"t": "A", "n": 2}, {"t": "a", "n": 3}, {"n": 4}]})";
  EXPECT_EQ(Render("{{ l|selectattr('t', 'equalto', 'a')|map(attribute='n')|list }} {{ l|rejectattr('t')|list }} {{ "
                   "l|selectattr('t', 'defined')|map(attribute='t')|join }}",
                   variables),
            "[3] [{'n': 4}] bAa");
  EXPECT_EQ(Render("{{ l[:3]|sort(attribute='t')|map(attribute='n')|list }} {{ ['b', 'A', 'c']|sort }} {{ [3, 1, "
                   "2]|sort(reverse=true) }} {{ ['b', 'A']|sort(case_sensitive=true) }}",
                   variables),
            "[2, 3, 1] ['A', 'b', 'c'] [3, 2, 1] ['A', 'b']");
  EXPECT_EQ(Render("{{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(by='value') }} {% for k, v in {'x': "
                   "1}|items %}{{ k }}{{ v }}{% endfor %}"),
            "[('A', 2), ('b', 1)] [('b', 1), ('A', 2)] x1");
  EXPECT_EQ(Render("{{ [1, 'a', none]|reject('none')|list }} {{ ['a', 'b']|reject('equalto', 'a')|list }} {{ ['a', "
                   "'b', 'c']|reject('in', ['a', 'b'])|list }} {{ [0, 1, '']|select|list }}"),
            "[1, 'a'] ['b'] ['c'] [1]");
  EXPECT_EQ(Render("{{ ['a', 'b']|map('upper')|join }} {{ [1, 2]|map('string')|list }} {{ ['a', 'A', 'b']|unique|list "
                   "}} {{ [3, 1]|min }} {{ [3, 1]|max }} {{ [1, 2]|sum }}"),
            "AB ['1', '2'] ['a', 'b'] 1 3 3");
  EXPECT_EQ(Render("{{ [1, 2]|first }}{{ [1, 2]|last }}{{ 'ab'|last }}[{{ []|first }}]{{ [1, 2]|reverse|list }}{{ "
                   "'ab'|reverse }}{{ 'ab'|list }}"),
            "12b[][2, 1]ba['a', 'b']");
}

TEST(JinjaFilters, SelectNothingFromWhatIsFalse) {
  EXPECT_EQ(Render("{{ none|map('upper')|list }}{{ 0|select|list }}{{ false|rejectattr('a')|list }}"), "[][][]");
  EXPECT_EQ(testing::ErrorText("{{ 1|select|list }}"), "line 1: a int is not iterable");
}

TEST(JinjaFilters, ReadNumbers) {
  EXPECT_EQ(Render("{{ '42'|int }} {{ ' -7 '|int }} {{ '3.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 2.9|int }} {{ "
                   "'0x1f'|int(base=16) }} {{ none|int }}"),
            "42 -7 3 0 5 2 31 0");
  EXPECT_EQ(Render("{{ '1.5'|float }} {{ 'x'|float }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 2.1|round(0, 'ceil') }} "
                   "{{ 3|round }} {{ -3|abs }}"),
            "1.5 0.0 2.57 2.0 3.0 3 3");
}

TEST(JinjaFilters, GiveGeneratorsThatAreReadOnce) {
  EXPECT_EQ(Render("{% set g = [1, 2]|select %}{{ g is iterable }}{{ g is sequence }}{{ g|first }}{{ g|list }}{{ "
                   "g|list }}{{ 1 if g }}"),
            "TrueFalse1[2][]1");
  EXPECT_EQ(testing::ErrorText("{{ [1]|map('string')|length }}"), "line 1: a generator has no length");
}

TEST(JinjaTests, TellTypesApart) {
  EXPECT_EQ(Render("{% for x in [none, true, 1, 1.5, 'a', [1], (1,), {'a': 1}] %}{{ x is none }}{{ x is boolean }}{{ x "
                   "is number }}{{ x is integer }}{{ x is string }}"
                   "{{ x is sequence }}{{ x is iterable }}{{ x is mapping }}{{ x is true }}\n{% endfor %}"),
            "TrueFalseFalseFalseFalseFalseFalseFalseFalse\nFalseTrueTrueFalseFalseFalseFalseFalseTrue\nFalseFalseTrueTr"
            "ueFalseFalseFalseFalseFalse\n"
            "FalseFalseTrueFalseFalseFalseFalseFalseFalse\nFalseFalseFalseFalseTrueTrueTrueFalseFalse\nFalseFalseFalseF"
            "alseFalseTrueTrueFalseFalse\n"
            "FalseFalseFalseFalseFalseTrueTrueFalseFalse\nFalseFalseFalseFalseFalseTrueTrueTrueFalse\n");
  EXPECT_EQ(Render("{{ 3 is odd }}{{ 3 is even }}{{ 1 is in [1] }}{{ 2 is gt 1 }}{{ 1 is false }}{{ false is false "
                   "}}{{ 'a' is eq('a') }}{{ 1 is not defined }}"),
            "TrueFalseTrueTrueFalseTrueTrueFalse");
}

constexpr char kVariables[] =
    R"({"messages": [{"role": "user", "content": "<|end|>hi", "n": 5, "parts": ["a", "b"]}], "bos_token": "<s>", "n": 7, "ok": true})";

// Of each byte: whether the template wrote it or the request brought it, which is shown in [ ].
std::string Marks(absl::string_view source) { return testing::Marks(source, kVariables); }

TEST(JinjaOrigins, OfTextLiteralsAndVariables) {
  EXPECT_EQ(Marks("{{ bos_token }}<|{{ messages[0].role }}|>{{ messages[0].content }}{{ '<|end|>' }}"),
            "<s><|user|>[<|end|>hi]<|end|>");
  EXPECT_EQ(Marks("{{ messages[0]['n'] }}{{ n + 1 }}{{ ok }}{{ 1 + 1 }}{{ none }}{{ loop_count }}"), "[58True]2None");
}

TEST(JinjaOrigins, AreKeptByConcatenationSlicesAndSplits) {
  EXPECT_EQ(Marks("{{ ('<|' + messages[0].content + '|>')[1:5] }}"), "|[<|e]");
  EXPECT_EQ(Marks("{{ 'a' ~ messages[0].content ~ n ~ 'b' }}"), "a[<|end|>hi7]b");
  EXPECT_EQ(Marks("{{ ('x|' + messages[0].content).split('|') }}"), "[[]'x'[, '<', 'end', '>hi']]");
  EXPECT_EQ(Marks("{{ ('  a' + messages[0].content + 'b ')|trim }}{{ ('a' + messages[0].content)[::-1] }}"),
            "a[<|end|>hi]b[ih>|dne|<]a");
  EXPECT_EQ(Marks("{% for c in 'a' + messages[0].content[:2] %}{{ c }}{% endfor %}"), "a[<|]");
}

TEST(JinjaOrigins, AreKeptByFiltersAndMethods) {
  EXPECT_EQ(Marks("{{ ('a' + messages[0].content)|upper }}{{ ('A' + messages[0].content)|capitalize }}"),
            "A[<|END|>HI]A[<|end|>hi]");
  EXPECT_EQ(Marks("{{ messages[0].parts|join('-') }}{{ ['x', messages[0].content]|join('+') }}"),
            "[a]-[b]x+[<|end|>hi]");
  EXPECT_EQ(Marks("{{ '%s=%s'|format('a', messages[0].content) }}{{ '{}!'.format(n) }}"), "a=[<|end|>hi7]!");
  EXPECT_EQ(Marks("{{ messages[0].content|length }}{{ messages[0].parts|first }}{{ 'ab'|length }}"), "[9a]2");
  EXPECT_EQ(Marks("{{ messages[0].content|default('x') }}{{ missing|default('x') }}{{ '5'|int }}{{ ('1' + "
                  "messages[0].n|string)|int }}"),
            "[<|end|>hi]x5[15]");
}

TEST(JinjaOrigins, AreKeptByPartitionsAndTruncation) {
  EXPECT_EQ(Marks("{{ ('a|' + messages[0].content).partition('|')|join }}{{ "
                  "messages[0].content.rpartition('|')|join('-') }}"),
            "a|[<|end|>hi<|end]-[|]-[>hi]");
  EXPECT_EQ(Marks("{{ messages[0].content|truncate(6, true, '<|x|>', 0) }}{{ 'abcdef'|truncate(4, true, '-', 0) }}"),
            "[<<|x|>]abc-");
  EXPECT_EQ(Marks("{{ messages[0].parts|batch(1)|list }}{{ messages[0].content|wordcount }}"), "[[['a'], ['b']]2]");
}

TEST(JinjaOrigins, OfWhatReplacesTheRequestsBytesAreTheRequests) {
  EXPECT_EQ(Marks("{{ messages[0].content|replace('hi', '<|start|>') }}{{ 'a-b'|replace('-', '<|start|>') }}"),
            "[<|end|><|start|>]a<|start|>b");
  EXPECT_EQ(Marks("{{ 'a-b'.replace('-', messages[0].content) }}{{ ('<' + 'x').replace('x', '|') }}"),
            "a[<|end|>hi]b<|");
}

TEST(JinjaOrigins, OfJsonAndPrintedListsAreThoseOfTheirContents) {
  EXPECT_EQ(Marks("{{ messages[0].parts|tojson }}{{ {'k': messages[0].parts[0], 'c': '<|end|>'}|tojson }}"),
            R"([["a", "b"]]{"k": ["a"], "c": "<|end|>"})");
  EXPECT_EQ(Marks("{{ messages[0].parts }}{{ ['<|end|>', messages[0].parts[0]] }}"), "[['a', 'b']]['<|end|>', ['a']]");
}

TEST(JinjaOrigins, GoThroughMacrosBlocksAndNamespaces) {
  EXPECT_EQ(
      Marks(
          "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}{% set b %}({{ n }}){% endset %}{{ b }}"),
      "<[<|end|>hi]>([7])");
  EXPECT_EQ(Marks("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '<' + m.content %}{% "
                  "endfor %}{{ ns.t }}"),
            "<[<|end|>hi]");
  EXPECT_EQ(Marks("{{ {'user': '<|user|>'}[messages[0].role] }}{{ {'<|end|>hi': 'found'}[messages[0].content] }}"),
            "<|user|>found");
}

TEST(JinjaOrigins, NamedInsideOfVariablesCoverOnlyWhatTheyName) {
  const JinjaTemplate chat = JinjaTemplate::Parse("{{ m.a.b.c }}{{ m.a.x }}{{ m.l[0].b }}").value();
  const auto variables = Json::parse(R"({"m": {"a": {"b": {"c": "1"}, "x": "2"}, "l": [{"b": "3"}]}})");
  const MarkedText text = chat.Render(variables, {"m.a.b", "m.l.b"}, testing::RenderingTime()).value();
  EXPECT_EQ(text.text(), "123");
  EXPECT_TRUE(text.IsTemplate(0, 1));
  EXPECT_FALSE(text.IsTemplate(1, 2));
  EXPECT_TRUE(text.IsTemplate(2, 3));
}

// Published chat templates and what jinja2 makes of them.

// The templates of the cases, parsed once each.
class TemplateFiles {
 public:
  const JinjaTemplate& Get(const std::string& name) {
    const auto known = templates_.find(name);
    if (known != templates_.end()) return known->second;
    const std::string path = testing::SharedPath("data/templates/" + name + ".jinja");
    absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(testing::ReadFileOrDie(path));
    EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.status();
    return templates_.emplace(name, *std::move(parsed)).first->second;
  }

 private:
  std::map<std::string, JinjaTemplate> templates_;
};

void ExpectCase(const Json& wanted, const absl::StatusOr<MarkedText>& rendered) {
  if (wanted.contains("expected")) {
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text(), wanted["expected"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << rendered->text();
  const bool raises = wanted["error_kind"] == "raise_exception";
  EXPECT_EQ(JinjaRaised(rendered.status()), raises) << rendered.status();
  if (raises) {
    EXPECT_EQ(rendered.status().message(), wanted["error"].get<std::string>());
  }
}

TEST(PublishedTemplates, RenderEveryCaseByteForByte) {
  SHARED_FILE_OR_SKIP(path, "data/templates/cases.jsonl");
  TemplateFiles templates;
  std::ifstream lines(path);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const Json wanted = Json::parse(line);
    SCOPED_TRACE(wanted["template"].get<std::string>() + ": " + wanted["case"].get<std::string>());
    const JinjaTemplate& chat = templates.Get(wanted["template"]);
    ExpectCase(wanted, chat.Render(wanted["inputs"], {"bos_token", "eos_token"}, testing::RenderingTime()));
    ++count;
  }
  EXPECT_GE(count, 187);
}

}  // namespace
}  // namespace stagecoach
