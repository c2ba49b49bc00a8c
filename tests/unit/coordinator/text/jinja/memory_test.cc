// How much a rendering has of the system's memory, seen from below: what is counted is what is taken.

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "gmock/gmock.h"
#include "tests/unit/coordinator/text/jinja/rendering.h"

namespace {

std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

void* Counted(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  if (live > peak_bytes) peak_bytes = live;
  return memory;
}

void Uncounted(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Counted(bytes); }
void* operator new[](size_t bytes) { return Counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Counted(bytes); }  // stable_sort's buffer
void operator delete(void* memory) noexcept { Uncounted(memory); }
void operator delete[](void* memory) noexcept { Uncounted(memory); }
void operator delete(void* memory, size_t) noexcept { Uncounted(memory); }
void operator delete[](void* memory, size_t) noexcept { Uncounted(memory); }

namespace stagecoach {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(JinjaMemory, IsCountedInsideOfFiltersMethodsAndRanges) {
  ASSERT_EQ(testing::Render("{{ 'x'|upper }}"), "X");  // tables that are made once
  const std::string numbers = "{% set l = range(40000)|list %}", text = "{% set s = 'ab ' * 500000 %}";
  const std::string keep = "{% set ns = namespace(a=none) %}{% for i in range(40) %}{% set ns.a = [ns.a, ";
  for (const std::string& source : {
           std::string("{% set l = [] %}{% for i in range(220000) %}{% set _ = l.append(i) %}{% endfor %}"),
           std::string("{% set d = {} %}{% for i in range(80000) %}{% set _ = d.update({i: i}) %}{% endfor %}"),
           std::string("{% set ns = namespace(t='') %}{% for i in range(220000) %}{% set ns.t = ns.t ~ 'x' * 1000 %}"
                       "{% endfor %}"),
           keep + "range(25000)] %}{% endfor %}",
           numbers + "{{ l|sort(reverse=true)|list|sort|length }}",
           numbers + "{{ (l + l)|unique|list|length }}",
           numbers + "{{ l|map('string')|list|length }}{{ l|map('list', 1)|list }}",
           numbers + "{{ (l + l + l)|batch(2, 'x')|list|length }}{{ l|batch(10 ** 9, 'x')|list|length }}",
           numbers + "{{ (l + l + l)|select|list|map('abs')|reject('odd')|list|reverse|list|length }}",
           numbers + "{{ l[::-1][::1]|list|length }}{{ (l * 100)|length }}",
           text + "{{ s|list|length }}",
           text + "{{ s.split(' ')|length }}",
           text + "{{ (s ~ s).rsplit(' ')|length }}",
           text + "{{ s.rpartition('b') }}{{ (s * 2)[::-1].rfind('x') }}{{ s|upper|replace('B', 'bbbbbb')|length }}",
           text + "{{ {s: 1, s ~ s: 2, s ~ s ~ s: 3}|length }}",
           text + "{% set ns = namespace(t=(s,)) %}{% for i in range(60) %}{% set ns.t = (s, ns.t) %}{% endfor %}"
                  "{{ {ns.t: 1}|length }}",
           text + "{{ {(s, 1): (s, 2)} == {(s, 1): (s, 2)} }}",
           text + "{{ (s|replace(' ', '\n')).splitlines()|length }}",
           text + "{{ s|indent(1000)|length }}{{ (s|replace(' ', '\n'))|indent(100)|length }}",
           text + "{{ (s * 10)[1:].removeprefix('b')[1:].strip() | tojson | length }}",
           std::string("{% for i in range(50000) %}{% macro m() %}{% endmacro %}{% endfor %}"),
           std::string("{% set d = {} %}{% for i in range(25000) %}{% set _ = d.update({i: i}) %}{% endfor %}"
                       "{{ d|dictsort|length }}{{ d|tojson(sort_keys=true)|length }}{{ d.items()|list|length }}"),
       }) {
    const int64_t before = live_bytes;
    peak_bytes = before;
    const absl::Status status =
        testing::RenderError(source, "{}", {.memory_bytes = static_cast<size_t>(6 * kMiB), .time = absl::Minutes(5)});
    EXPECT_LT(peak_bytes - before, 6 * kMiB + 512 * 1024) << source << ": " << status;
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << source << ": " << status;
    EXPECT_LT(live_bytes - before, 64 * 1024) << source;
  }
}

TEST(JinjaMemory, OfVariablesIsCounted) {
  Json variables = {{"x", Json::array()}, {"y", std::string(size_t{5} << 20, 'y')}};
  for (int i = 0; i < 15000; ++i) variables["x"].push_back({{"a", "b"}});
  for (const char* source : {"{{ x|length }}", "{{ y|length }}"}) {
    const absl::StatusOr<JinjaTemplate> parsed = JinjaTemplate::Parse(source);
    const int64_t before = live_bytes;
    peak_bytes = before;
    const absl::Status status = parsed
                                    ->Render(variables, {}, testing::RenderingTime(),
                                             {.memory_bytes = static_cast<size_t>(6 * kMiB), .time = absl::Minutes(5)})
                                    .status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_LT(peak_bytes - before, 6 * kMiB + 512 * 1024) << source;
  }
}

}  // namespace
}  // namespace stagecoach
