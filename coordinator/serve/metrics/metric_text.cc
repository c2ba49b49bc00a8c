#include "coordinator/serve/metrics/metric_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "coordinator/text/utf8.h"

namespace stagecoach {
namespace {

constexpr char kOther[] = "other";

const char* TypeName(MetricText::Type type) {
  switch (type) {
    case MetricText::Type::kCounter: return "counter";
    case MetricText::Type::kGauge: return "gauge";
    case MetricText::Type::kHistogram: return "histogram";
  }
  return "untyped";
}

// The fewest digits that give the number back.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof(digits), value);
  return std::string(digits, result.ptr);
}

void AppendEscaped(absl::string_view text, bool quoted, std::string* out) {
  std::string whole;
  whole.reserve(text.size());
  const size_t taken = AppendWholeUtf8(text, &whole);
  if (taken < text.size()) AppendUtf8(kReplacementCharacter, &whole);  // cut short by its end
  for (const char c : whole) {
    if (c == '\\') {
      out->append("\\\\");
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '"' && quoted) {
      out->append("\\\"");
    } else {
      out->push_back(c);
    }
  }
}

}  // namespace

MetricHistogram::MetricHistogram(absl::Span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1, 0) {
  CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void MetricHistogram::Observe(double value, uint64_t times) {
  if (std::isnan(value) || times == 0) return;
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)] += times;
  sum_ += value * static_cast<double>(times);
}

void MetricHistogram::Set(absl::Span<const uint64_t> counts, double sum) {
  std::fill(counts_.begin(), counts_.end(), 0);
  for (size_t i = 0; i < counts.size(); ++i) counts_[std::min(i, counts_.size() - 1)] += counts[i];
  sum_ = sum;
}

std::vector<double> SecondsBounds(double most) {
  std::vector<double> bounds;
  for (const double bound :
       {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1,   0.15,  0.2,   0.3,    0.5,
        0.75,  1.0,    2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0}) {
    if (bound <= most) bounds.push_back(bound);
  }
  return bounds;
}

std::vector<double> CountBounds(double most) {
  std::vector<double> bounds;
  for (double ten = 1; ten <= most; ten *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (ten * step <= most) bounds.push_back(ten * step);
    }
  }
  return bounds;
}

void LabelledCounts::Add(absl::string_view value, double more) {
  auto found = values_.find(value);
  if (found == values_.end()) {
    // The one place more is for all that finds none.
    const bool room = values_.size() < most_ + (values_.contains(kOther) ? 1 : 0);
    found = values_.emplace(room ? std::string(value) : kOther, 0).first;
  }
  found->second += more;
}

void MetricText::Family(absl::string_view name, Type type, absl::string_view help) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ");
  AppendEscaped(help, /*quoted=*/false, &text_);
  absl::StrAppend(&text_, "\n# TYPE ", name, " ", TypeName(type), "\n");
}

void MetricText::Line(absl::string_view suffix, const MetricLabels& labels, double value) {
  absl::StrAppend(&text_, name_, suffix);
  const char* separator = "{";
  for (const auto& [name, text] : labels) {
    absl::StrAppend(&text_, separator, name, "=\"");
    AppendEscaped(text, /*quoted=*/true, &text_);
    text_.push_back('"');
    separator = ",";
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", Number(value), "\n");
}

void MetricText::Sample(double value, const MetricLabels& labels) { Line("", labels, value); }

void MetricText::Sample(const MetricHistogram& histogram, const MetricLabels& labels) {
  MetricLabels with_bound = labels;
  with_bound.emplace_back("le", "");
  uint64_t count = 0;
  for (size_t i = 0; i < histogram.counts().size(); ++i) {
    count += histogram.counts()[i];
    with_bound.back().second = i < histogram.bounds().size() ? Number(histogram.bounds()[i]) : "+Inf";
    Line("_bucket", with_bound, static_cast<double>(count));
  }
  Line("_sum", labels, histogram.sum());
  Line("_count", labels, static_cast<double>(count));
}

void MetricText::Samples(const LabelledCounts& counts, absl::string_view label) {
  for (const auto& [value, count] : counts.values()) Sample(count, {{std::string(label), value}});
}

void MetricText::Counter(absl::string_view name, absl::string_view help, double value) {
  Family(name, Type::kCounter, help);
  Sample(value);
}

void MetricText::Gauge(absl::string_view name, absl::string_view help, double value) {
  Family(name, Type::kGauge, help);
  Sample(value);
}

void MetricText::Histogram(absl::string_view name, absl::string_view help, const MetricHistogram& histogram) {
  Family(name, Type::kHistogram, help);
  Sample(histogram);
}

}  // namespace stagecoach
