#ifndef STAGECOACH_COORDINATOR_SERVE_METRICS_METRIC_TEXT_H_
#define STAGECOACH_COORDINATOR_SERVE_METRICS_METRIC_TEXT_H_

// Metrics in Prometheus' text format 0.0.4: counted values, and the writer of their text. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

// Of one sample: names and values, in the order in which they are written. Values may hold what is not UTF-8: U+FFFD.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// How many of the observed values were how large.
class MetricHistogram {
 public:
  explicit MetricHistogram(absl::Span<const double> bounds);  // ascending; +Inf is added
  void Observe(double value, uint64_t times = 1);             // of NaN: nothing
  // What others counted: of each bucket alone; what is beyond the last belongs to it.
  void Set(absl::Span<const uint64_t> counts, double sum);

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // [bounds + 1], of each bucket alone
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// The bounds of seconds from 0.001 to `most`: 2560 or less.
std::vector<double> SecondsBounds(double most);
// 1, 2, 5, 10, ... to `most`.
std::vector<double> CountBounds(double most);

// The values of one label; in the order of its values.
class LabelledCounts {
 public:
  // At most as many values: what is beyond them counts for the value "other".
  explicit LabelledCounts(size_t most = 256) : most_(most) {}
  void Add(absl::string_view value, double more = 1);
  const std::map<std::string, double, std::less<>>& values() const { return values_; }

 private:
  const size_t most_;
  std::map<std::string, double, std::less<>> values_;
};

// Writes families one after the other: the family, then all its samples.
class MetricText {
 public:
  enum class Type { kCounter, kGauge, kHistogram };

  void Family(absl::string_view name, Type type, absl::string_view help);
  void Sample(double value, const MetricLabels& labels = {});
  void Sample(const MetricHistogram& histogram, const MetricLabels& labels = {});
  void Samples(const LabelledCounts& counts, absl::string_view label);

  // A family of one sample.
  void Counter(absl::string_view name, absl::string_view help, double value);
  void Gauge(absl::string_view name, absl::string_view help, double value);
  void Histogram(absl::string_view name, absl::string_view help, const MetricHistogram& histogram);

  std::string Take() { return std::move(text_); }

 private:
  void Line(absl::string_view suffix, const MetricLabels& labels, double value);

  std::string name_;  // of the present family
  std::string text_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_METRICS_METRIC_TEXT_H_
