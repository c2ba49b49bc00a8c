#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace stagecoach {
namespace {

std::string ParseError(absl::string_view source) {
  const absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(source);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

std::string Repeated(const std::string& text, int count) {
  std::string repetition;
  for (int i = 0; i < count; ++i) repetition += text;
  return repetition;
}

TEST(JinjaErrors, NameTheLineAndTheConstructOfATemplateThatIsNone) {
  EXPECT_THAT(ParseError("a\nb\n{{ x | foo }}"),
              StartsWith("line 3: unknown filter 'foo'; there are abs, batch, capitalize, "));
  EXPECT_THAT(ParseError("\n{{ x is foo }}"), StartsWith("line 2: unknown test 'foo'; there are !=, "));
  EXPECT_THAT(ParseError("{% include 'x' %}"),
              StartsWith("line 1: unknown statement 'include'; there are break, call, "));
  EXPECT_EQ(ParseError("\n{% if x %}\n\n"), "line 2: 'if' has no 'endif'");
  EXPECT_EQ(ParseError("{% for x in y %}{% endif %}"),
            "line 1: unknown statement 'endif'; there are break, call, continue, filter, for, generation, if, macro, "
            "set, with");
  EXPECT_EQ(ParseError("{{ 1 + }}"), "line 1: unexpected '}}' where a value belongs");
  EXPECT_EQ(ParseError("{{ }}"), "line 1: unexpected '}}' where an expression belongs");
  EXPECT_EQ(ParseError("{{ (1 }}"), "line 1: unexpected '}', expected ')'");
  EXPECT_EQ(ParseError("{{ 1 ] }}"), "line 1: unexpected ']'");
  EXPECT_EQ(ParseError("a {{ x"), "line 1: '{{' has no '}}'");
  EXPECT_EQ(ParseError("a\n{% if"), "line 2: '{%' has no '%}'");
  EXPECT_EQ(ParseError("a\n{# b"), "line 2: the comment has no end '#}'");
  EXPECT_EQ(ParseError("{% raw %}\n{{"), "line 1: 'raw' has no 'endraw'");
  EXPECT_EQ(ParseError("{{ 'abc }}"), "line 1: a string has no end");
  EXPECT_EQ(ParseError("{{ a ? b }}"), "line 1: unexpected character '?'");
  EXPECT_EQ(ParseError("{{ 1 2 }}"), "line 1: expected '}}' after the expression, found '2'");
  EXPECT_EQ(ParseError("{% set true = 1 %}"), "line 1: cannot assign to 'true'");
  EXPECT_EQ(ParseError("{% break %}"), "line 1: 'break' outside of a loop");
  EXPECT_EQ(ParseError("{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}"),
            "line 1: 'continue' outside of a loop");
  EXPECT_EQ(ParseError("{{ f(a=1, 2) }}"), "line 1: an argument by place follows one by name");
  EXPECT_EQ(ParseError("{% macro m(a=1, b) %}{% endmacro %}"),
            "line 1: the parameter 'b' without a default follows one that has one");
  EXPECT_EQ(ParseError("{{ 99999999999999999999999999999999999999999 }}"),
            "line 1: the number 99999999999999999999999999999999999999999 is too large");
  EXPECT_EQ(ParseError("{{ '\\x4' }}"), "line 1: the escape '\\x' needs 2 hexadecimal digits of a character");
  EXPECT_EQ(ParseError("{% for x in y recursive %}{% endfor %}"), "line 1: a recursive loop is not supported");
}

TEST(JinjaErrors, OfAnUnknownFilterWaitWhereItMayNeverBeReached) {
  EXPECT_EQ(testing::Render("{% if x is defined %}{{ x | from_yaml }}{% endif %}ok"), "ok");
  EXPECT_EQ(testing::Render("{{ x | from_yaml if x is defined else 'ok' }}"), "ok");
  EXPECT_THAT(testing::ErrorText("{% if true %}\n{{ 1 | from_yaml }}{% endif %}"),
              StartsWith("line 2: unknown filter 'from_yaml'; "));
}

TEST(JinjaErrors, NameTheLineOfWhatCannotBeDone) {
  EXPECT_EQ(testing::ErrorText("a\n{{ 'x'.foo() }}"), "line 2: 'foo' is undefined and cannot be called");
  EXPECT_EQ(testing::ErrorText("\n\n{{ x.y.z }}"), "line 3: 'x' is undefined and has no 'y'");
  EXPECT_EQ(testing::ErrorText("{% set l = [] %}\n{{ l.pop() }}"), "line 2: 'pop' from an empty list");
  EXPECT_EQ(testing::ErrorText("{{ 1 | items }}"), "line 1: 'items' needs a dict, not a int");
  EXPECT_EQ(testing::ErrorText("{{ 'a'.split('') }}"), "line 1: an empty separator");
  EXPECT_EQ(testing::ErrorText("{{ 'a'|trim(1, 2) }}"), "line 1: 'trim' takes at most 1 arguments, not 2");
  EXPECT_EQ(testing::ErrorText("{{ 'a'|trim(what=1) }}"), "line 1: 'trim' has no argument 'what'");
  EXPECT_EQ(testing::ErrorText("{{ 'a'|replace('a') }}"), "line 1: 'replace' needs the argument 'new'");
  EXPECT_EQ(testing::ErrorText("{% set d.a = 1 %}"), "line 1: 'd' is no namespace, so its 'a' cannot be set");
  EXPECT_EQ(testing::ErrorText("{{ {[]: 1} }}"), "line 1: a list cannot be the key of a dict");
  EXPECT_EQ(testing::ErrorText("{{ 10 ** 40 }}"), "line 1: an integer is too large");
  EXPECT_EQ(testing::ErrorText("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}"),
            "line 2: unsupported operands of +: int and str");
}

TEST(JinjaErrors, OfTheTemplateItselfAreItsTextAlone) {
  const absl::Status error = testing::RenderError(
      "\n{% if true %}{{ raise_exception('Roles must ' ~ what) }}{% endif %}", R"({"what": "alternate!\n"})");
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "Roles must alternate!\n");
  EXPECT_TRUE(JinjaRaised(error));
  EXPECT_FALSE(JinjaRaised(testing::RenderError("{{ 1 + 'a' }}")));
  EXPECT_FALSE(JinjaRaised(absl::OkStatus()));
}

TEST(JinjaErrors, EndATemplateThatIsNestedTooDeep) {
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                                                    {"[", "]"},
                                                                                    {"{1:", "}"},
                                                                                    {"-", ""},
                                                                                    {"not ", ""},
                                                                                    {"x[", "]"},
                                                                                    {"f(", ")"},
                                                                                    {"x|f(", ")"},
                                                                                    {"1 if 1 else ", ""},
                                                                                    {"1 if ", ""},
                                                                                    {"x is in(", ")"}}) {
    const std::string deep = "{{ " + Repeated(open, 10000) + "1" + Repeated(close, 10000) + " }}";
    EXPECT_THAT(ParseError(deep), HasSubstr("nested more than 64 levels deep")) << open;
  }
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"{% if 1 %}", "{% endif %}"},
                                                        {"{% for x in y %}", "{% endfor %}"},
                                                        {"{% macro m() %}", "{% endmacro %}"},
                                                        {"{% set x %}", "{% endset %}"},
                                                        {"{% filter trim %}", "{% endfilter %}"}}) {
    EXPECT_THAT(ParseError(Repeated(open, 5000) + Repeated(close, 5000)), HasSubstr("nested more than 64 levels deep"))
        << open;
  }
  EXPECT_THAT(ParseError("{% for " + Repeated("(", 10000) + "x" + Repeated(")", 10000) + " in y %}{% endfor %}"),
              HasSubstr("nested more than 64 levels deep"));
  EXPECT_EQ(testing::Render("{{ " + Repeated("(", 50) + "1" + Repeated(")", 50) + " }}"), "1");
}

TEST(JinjaErrors, LetWhatIsLongButFlatThrough) {
  EXPECT_EQ(testing::Render("{{ 0" + Repeated(" + 1", 20000) + " }}"), "20000");
  EXPECT_EQ(testing::Render("{{ (''" + Repeated(" ~ 'a'", 20000) + ")|length }}"), "20000");
  EXPECT_EQ(testing::Render("{{ 1" + Repeated(" and 1", 20000) + " }}"), "1");
  EXPECT_EQ(testing::Render("{{ 'a'" + Repeated("|trim", 20000) + " }}"), "a");
  EXPECT_EQ(testing::Render("{% if 0 %}" + Repeated("{% elif 0 %}", 20000) + "{% else %}x{% endif %}"), "x");
  EXPECT_THAT(ParseError(std::string(2 << 20, 'a')), HasSubstr("the template has 2097152 bytes, at most 262144"));
}

TEST(JinjaErrors, NoPartOfATemplateCrashesTheParser) {
  const std::string source =
      "{% macro m(a, b=1) -%}{{ a[1:2]|join(', ') ~ \"x\\n\" }}{%- endmacro %}{% for k, v in d.items() if v is not "
      "none %}"
      "{# c #}{% set ns.x = {'a': [1, (2,)]} %}{{ m(k, b=-v ** 2) if loop.last else 1.5e3 }}{% else %}{% raw %}{{{% "
      "endraw %}{% endfor %}";
  ASSERT_TRUE(JinjaTemplate::Parse(source).ok());
  for (size_t i = 0; i < source.size(); ++i) {
    testing::Render(source.substr(0, i), R"({"d": {"a": 1}})");
    testing::Render(source.substr(i), R"({"d": {"a": 1}})");
    testing::Render(source.substr(0, i) + source.substr(i + 1), R"({"d": {"a": 1}})");
    testing::Render(source.substr(0, i) + "\xFF{{" + source.substr(i), R"({"d": {"a": 1}})");
  }
}

// However much of the template or of the request is in it.
TEST(JinjaErrors, AreNeverLong) {
  const std::string variables = absl::StrCat(R"({"x": ")", std::string(300'000, 'x'), "\"}"), name(100000, 'n');
  for (const std::string& source : {
           std::string("{{ raise_exception(x) }}"),
           std::string("{{ [1]|map(x)|list }}"),
           std::string("{{ [1]|select(x)|list }}"),
           std::string("{{ ('%(' + x + ')s') % {} }}"),
           std::string("{{ ('{' + x + '}').format() }}"),
           std::string("{{ ('{0!' + x + '}').format(1) }}"),
           std::string("{{ {}[x] + 1 }}"),
           "{{ " + name + " + 1 }}",
           "{{ a." + name + "() }}",
           "{{ 1|" + name + " }}",
           "{{ 1 is " + name + " }}",
           "{% " + name + " %}",
           "{{ 'a'|upper(" + name + "=1) }}",
           "{{ a b" + name + " }}",
           "{{ 1" + std::string(100000, '1') + " }}",
           "{% set a." + name + " = 1 %}",
           "{% macro m" + name + "() %}{% endmacro %}{{ m" + name + "(1) }}",
       }) {
    const absl::Status error = testing::RenderError(source, variables);
    EXPECT_FALSE(error.ok()) << source.substr(0, 60);
    EXPECT_LT(error.message().size(), 1000u) << source.substr(0, 60);
  }
  const absl::Status raised = testing::RenderError("{{ raise_exception('no ' + x + '; ' + 'ä' * 2000) }}", variables);
  EXPECT_EQ(raised.message(), absl::StrCat("no ", std::string(200, 'x'), "...; ",
                                           absl::StrReplaceAll(std::string(1000 - 208, 'a'), {{"a", "ä"}}), "..."));
}

// Templates that would take all there is.

void ExpectLimit(absl::string_view source, const std::string& words,
                 const JinjaLimits& limits = testing::WithoutHurry(), const std::string& variables = "{}") {
  const absl::Time start = absl::Now();
  const absl::Status error = testing::RenderError(source, variables, limits);
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(words))) << source;
  EXPECT_LT(absl::Now() - start, absl::Seconds(30)) << source;  // two, where no sanitizer is
}

TEST(JinjaLimits, HoldForRoundsOfAllLoopsTogether) {
  ExpectLimit("{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
              "line 1: more than 1000000 rounds of loops");
  ExpectLimit("{% set l = [1] %}{% for a in range(3) %}{% for b in range(3) %}{% endfor %}{% endfor %}",
              "more than 8 rounds", {.loop_rounds = 8, .time = absl::Minutes(1)});
  ExpectLimit("{{ range(10 ** 12) }}", "a range of 1000000000000 numbers, at most 1000000");
}

TEST(JinjaLimits, HoldForOutput) {
  ExpectLimit("{% for a in range(20) %}0123456789{% endfor %}", "the output is longer than 100 bytes",
              {.output_bytes = 100, .time = absl::Minutes(1)});
  ExpectLimit("{% set x = 'x' * 1000000 %}{% for a in range(100) %}{{ x }}{% endfor %}",
              "the output is longer than 16777216 bytes");
  ExpectLimit("{% macro m() %}{% for a in range(20) %}0123456789{% endfor %}{% endmacro %}{{ m()|length }}",
              "the output is longer than", {.output_bytes = 100, .time = absl::Minutes(1)});
}

TEST(JinjaLimits, HoldForMemory) {
  for (const char* source : {
           "{{ 'x' * 10 ** 9 }}",
           "{{ 'x' * 10 ** 30 }}",
           "{{ [1] * 10 ** 9 }}",
           "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
           "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x|replace('x', ns.x) %}{% endfor "
           "%}",
           "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x.join(ns.x) %}{% endfor %}",
           "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
           "{% set ns = namespace(x='a\n') %}{% for i in range(60) %}{% set ns.x = ns.x|indent(1000000) ~ ns.x %}{% "
           "endfor %}",
           "{{ 'x'|indent(10 ** 15, first=true) }}",
           "{% set x = 'ab' * 1000000 %}{% set l = [] %}{% for i in range(1000) %}{% set _ = l.append(x.split('a')) "
           "%}{% endfor %}",
           "{% set l = [] %}{% for i in range(1000) %}{% set _ = l.append(range(100000)) %}{% endfor %}",
           "{% set l = [] %}{% for i in range(1000) %}{% set _ = l.append(('x' * 1000000)|upper) %}{% endfor %}",
           "{% set l = [] %}{% for i in range(100) %}{% set _ = l.append(('x' * 1000000)|list) %}{% endfor %}",
       }) {
    ExpectLimit(source, "the values take more than 4194304 bytes of memory",
                {.memory_bytes = 4 << 20, .time = absl::Minutes(1)});
  }
}

TEST(JinjaLimits, LeaveMemoryThatIsGivenBackToOthers) {
  EXPECT_EQ(testing::Render("{% set ns = namespace(x='') %}{% for i in range(300) %}{% set ns.x = 'y' * 1000000 %}{% "
                            "endfor %}{{ ns.x|length }}"),
            "1000000");
}

TEST(JinjaLimits, HoldForTime) {
  const JinjaLimits limits{
      .loop_rounds = int64_t{1} << 40, .memory_bytes = size_t{1} << 40, .time = absl::Milliseconds(50)};
  for (const char* source : {
           "{% for i in range(10 ** 6) %}{% for j in range(10 ** 6) %}{% endfor %}{% endfor %}",
           "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
           "{% set x = 'a' * 1000000 %}{% for i in range(10 ** 5) %}{{ x|upper|length }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% set y = 'a' * 1000 ~ 'b' %}{% for i in range(10 ** 5) %}{{ y in x }}{% "
           "endfor %}",
           "{% set x = range(10 ** 5)|list %}{% for i in range(10 ** 5) %}{{ -1 in x }}{% endfor %}",
           "{% set x = range(10 ** 5)|list %}{% for i in range(10 ** 5) %}{{ x|sort|length }}{% endfor %}",
           "{% set x = ['a'] * 1000 %}{% for i in range(10 ** 6) %}{{ x|unique|list|length }}{% endfor %}",
           // One step of each takes milliseconds, so that the clock has to be looked at for each.
           "{% set x = 'a' * 10 ** 7 %}{% for i in range(10 ** 6) %}{% set y = x.removeprefix('') %}{% endfor %}",
           "{% set x = 'a' * 10 ** 7 %}{% for i in range(10 ** 6) %}{% set y = x.rpartition('b') %}{% endfor %}",
           "{% set x = 'a' * 10 ** 7 %}{% for i in range(10 ** 6) %}{% set y = x|wordcount %}{% endfor %}",
           "{% set x = 'a' * 10 ** 7 %}{% for i in range(10 ** 6) %}{% set y = x|truncate %}{% endfor %}",
           "{% set x = range(10 ** 6)|map('abs') %}{% for i in range(10 ** 6) %}{{ x|first }}{% endfor %}",
           "{% set d = {} %}{% for i in range(10 ** 5) %}{% set _ = d.update({i|string: i}) %}{% endfor %}{% set n = "
           "namespace(d) %}{% for i in range(10 ** 6) %}{% set n.x = n.y %}{% endfor %}",
       }) {
    ExpectLimit(source, "rendering took longer than 50ms", limits);
  }
  // Shared values, of which there are many ways through.
  const std::string shared =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, "
      "ns.b] %}{% endfor %}";
  ExpectLimit(shared + "{{ ns.a == ns.b }}", "rendering took longer than 50ms", limits);
  ExpectLimit(shared + "{{ (ns.a|string)|length }}", "", limits);
  ExpectLimit(shared + "{{ (ns.a|tojson)|length }}", "", limits);
}

TEST(JinjaLimits, HoldForDepthOfMacros) {
  ExpectLimit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "line 1: more than 64 levels deep");
  ExpectLimit("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
              "more than 64 levels deep");
  ExpectLimit(
      "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ "
      "n() }}",
      "levels deep");
  EXPECT_EQ(testing::Render("{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}x{% endmacro %}{{ m(60) }}"),
            std::string(60, 'x'));
  // Each call as deep in statements and expressions as a template may be.
  const std::string deep = "{{ " + Repeated("(", 40) + "m()" + Repeated(")", 40) + " }}";
  const std::string body = Repeated("{% if true %}", 18) + deep + Repeated("{% endif %}", 18);
  ExpectLimit("{% macro m() %}" + body + "{% endmacro %}{{ m() }}", "levels deep");
  const std::string lists = Repeated("[", 55) + "m()" + Repeated("]", 55);
  ExpectLimit("{% macro m() %}{{ " + lists + " }}{% endmacro %}{{ m() }}", "levels deep");
}

TEST(JinjaLimits, HoldForDepthOfValues) {
  const std::string endless = "{% set l = [] %}{% set _ = l.append(l) %}";
  const std::string another = "{% set k = [] %}{% set _ = k.append(k) %}";
  for (const char* use :
       {"{{ l }}", "{{ l|tojson }}", "{{ l|string }}", "{{ l ~ 1 }}", "{{ '%s' % l }}", "{{ [l] }}"}) {
    ExpectLimit(endless + use, "more than 64 levels deep");
  }
  ExpectLimit(endless + another + "{{ l == k }}", "more than 64 levels deep");
  ExpectLimit(endless + another + "{{ l < k }}", "more than 64 levels deep");
  ExpectLimit(endless + another + "{{ k in l }}", "more than 64 levels deep");
  ExpectLimit("{% set d = {} %}{% set _ = d.update({'d': d}) %}{{ d }}", "more than 64 levels deep");
  ExpectLimit("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "more than 64 levels deep");
  ExpectLimit(
      "{% set ns = namespace(t=(1,)) %}{% for i in range(100) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1} }}",
      "more than 64 levels deep");
  ExpectLimit("{{ 'a'|map(" + Repeated("'map', ", 1000) + "'list') }}", "more than 64 levels deep");
}

TEST(JinjaLimits, HoldForDepthOfVariables) {
  const auto nested = [](int depth) { return "{\"x\": " + Repeated("[", depth) + Repeated("]", depth) + "}"; };
  EXPECT_EQ(testing::Render("{{ x|tojson }}", nested(64)), std::string(64, '[') + std::string(64, ']'));
  ExpectLimit("{{ x }}", "more than 64 levels deep", testing::WithoutHurry(), nested(65));
  ExpectLimit("{{ x }}", "more than 64 levels deep", testing::WithoutHurry(), nested(100000));
  EXPECT_EQ(testing::Render("{{ y }}", nested(65)), "");  // the template does not look at it
}

TEST(JinjaLimits, HoldForALoopOverAListThatGrows) {
  EXPECT_EQ(testing::Render("{% set l = [1, 2] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}{{ l }}"),
            "[1, 2, 1, 2]");
}

TEST(JinjaLimits, AValueManyLevelsDeepIsGivenBack) {
  EXPECT_EQ(testing::Render("{% set ns = namespace(l=[]) %}{% for i in range(20000) %}{% set ns.l = [ns.l] %}{% "
                            "endfor %}{{ ns.l|length }}"),
            "1");
}

}  // namespace
}  // namespace stagecoach
