#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

// Templates that would take all there is.

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

void ExpectLimit(absl::string_view source, const std::string& words,
                 const JinjaLimits& limits = testing::WithoutHurry(), const std::string& variables = "{}") {
  const absl::Time start = absl::Now();
  const absl::Status error = testing::RenderError(source, variables, limits);
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << source << ": " << error;
  EXPECT_THAT(std::string(error.message()), HasSubstr(words)) << source;
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
  const JinjaLimits limits{.loop_rounds = int64_t{1} << 40, .time = absl::Milliseconds(50)};
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
  std::string deep = "m()";
  for (int i = 0; i < 40; ++i) deep = "(" + deep + ")";
  std::string body = "{{ " + deep + " }}";
  for (int i = 0; i < 18; ++i) body = "{% if true %}" + body + "{% endif %}";
  ExpectLimit("{% macro m() %}" + body + "{% endmacro %}{{ m() }}", "levels deep");
  std::string lists = "m()";
  for (int i = 0; i < 55; ++i) lists = "[" + lists + "]";
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
  ExpectLimit(
      "{{ 'a'|map(" +
          [] {
            std::string maps;
            for (int i = 0; i < 1000; ++i) maps += "'map', ";
            return maps;
          }() +
          "'list') }}",
      "more than 64 levels deep");
}

TEST(JinjaLimits, HoldForDepthOfVariables) {
  const auto nested = [](int depth) {
    return "{\"x\": " + std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']') +
           "}";
  };
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
