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
  EXPECT_EQ(testing::RenderError("{{ l[::0] }}", variables).message(), "line 1: the stride of a slice cannot be 0");
}

TEST(JinjaExpressions, AddStringsListsAndTuples) {
  EXPECT_EQ(
      Render(
          "{{ 'a' + 'b' }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'ab' * 2 }}{{ 2 * [0] }}{{ 'x' * -1 }}{{ true + true }}"),
      "ab[1, 2](1, 2)abab[0, 0]2");
  EXPECT_EQ(testing::RenderError("{{ 'a' + 1 }}").message(), "line 1: unsupported operands of +: str and int");
  EXPECT_EQ(testing::RenderError("{{ 1 // 0 }}").message(), "line 1: division by zero");
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

}  // namespace
}  // namespace stagecoach
