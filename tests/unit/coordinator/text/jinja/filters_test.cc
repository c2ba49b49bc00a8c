#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace stagecoach {
namespace {

using testing::Render;

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

}  // namespace
}  // namespace stagecoach
