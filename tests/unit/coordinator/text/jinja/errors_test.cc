#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ParseError(absl::string_view source) {
  const absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(source);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
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
  EXPECT_THAT(std::string(testing::RenderError("{% if true %}\n{{ 1 | from_yaml }}{% endif %}").message()),
              StartsWith("line 2: unknown filter 'from_yaml'; "));
}

TEST(JinjaErrors, NameTheLineOfWhatCannotBeDone) {
  EXPECT_EQ(testing::RenderError("a\n{{ 'x'.foo() }}").message(), "line 2: 'foo' is undefined and cannot be called");
  EXPECT_EQ(testing::RenderError("\n\n{{ x.y.z }}").message(), "line 3: 'x' is undefined and has no 'y'");
  EXPECT_EQ(testing::RenderError("{% set l = [] %}\n{{ l.pop() }}").message(), "line 2: 'pop' from an empty list");
  EXPECT_EQ(testing::RenderError("{{ 1 | items }}").message(), "line 1: 'items' needs a dict, not a int");
  EXPECT_EQ(testing::RenderError("{{ 'a'.split('') }}").message(), "line 1: an empty separator");
  EXPECT_EQ(testing::RenderError("{{ 'a'|trim(1, 2) }}").message(), "line 1: 'trim' takes at most 1 arguments, not 2");
  EXPECT_EQ(testing::RenderError("{{ 'a'|trim(what=1) }}").message(), "line 1: 'trim' has no argument 'what'");
  EXPECT_EQ(testing::RenderError("{{ 'a'|replace('a') }}").message(), "line 1: 'replace' needs the argument 'new'");
  EXPECT_EQ(testing::RenderError("{% set d.a = 1 %}").message(),
            "line 1: 'd' is no namespace, so its 'a' cannot be set");
  EXPECT_EQ(testing::RenderError("{{ {[]: 1} }}").message(), "line 1: a list cannot be the key of a dict");
  EXPECT_EQ(testing::RenderError("{{ 10 ** 40 }}").message(), "line 1: an integer is too large");
  EXPECT_EQ(testing::RenderError("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}").message(),
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
  const auto repeated = [](const std::string& text, int count) {
    std::string repetition;
    for (int i = 0; i < count; ++i) repetition += text;
    return repetition;
  };
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
    const std::string deep = "{{ " + repeated(open, 10000) + "1" + repeated(close, 10000) + " }}";
    EXPECT_THAT(ParseError(deep), HasSubstr("nested more than 64 levels deep")) << open;
  }
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"{% if 1 %}", "{% endif %}"},
                                                        {"{% for x in y %}", "{% endfor %}"},
                                                        {"{% macro m() %}", "{% endmacro %}"},
                                                        {"{% set x %}", "{% endset %}"},
                                                        {"{% filter trim %}", "{% endfilter %}"}}) {
    EXPECT_THAT(ParseError(repeated(open, 5000) + repeated(close, 5000)), HasSubstr("nested more than 64 levels deep"))
        << open;
  }
  EXPECT_THAT(ParseError("{% for " + repeated("(", 10000) + "x" + repeated(")", 10000) + " in y %}{% endfor %}"),
              HasSubstr("nested more than 64 levels deep"));
  EXPECT_EQ(testing::Render("{{ " + repeated("(", 50) + "1" + repeated(")", 50) + " }}"), "1");
}

TEST(JinjaErrors, LetWhatIsLongButFlatThrough) {
  const auto repeated = [](const std::string& text, int count) {
    std::string repetition;
    for (int i = 0; i < count; ++i) repetition += text;
    return repetition;
  };
  EXPECT_EQ(testing::Render("{{ 0" + repeated(" + 1", 20000) + " }}"), "20000");
  EXPECT_EQ(testing::Render("{{ (''" + repeated(" ~ 'a'", 20000) + ")|length }}"), "20000");
  EXPECT_EQ(testing::Render("{{ 1" + repeated(" and 1", 20000) + " }}"), "1");
  EXPECT_EQ(testing::Render("{{ 'a'" + repeated("|trim", 20000) + " }}"), "a");
  EXPECT_EQ(testing::Render("{% if 0 %}" + repeated("{% elif 0 %}", 20000) + "{% else %}x{% endif %}"), "x");
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

}  // namespace
}  // namespace stagecoach
