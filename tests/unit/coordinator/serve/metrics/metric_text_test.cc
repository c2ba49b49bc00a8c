#include "coordinator/serve/metrics/metric_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MetricText, IsAFamilyThenItsSamples) {
  MetricText text;
  text.Family("a_total", MetricText::Type::kCounter, "What \"a\" is: one\\two\nlines.");
  text.Sample(3, {{"x", "1"}, {"y", "2"}});
  text.Sample(0.1);
  text.Gauge("b", "B.", -std::numeric_limits<double>::infinity());
  EXPECT_EQ(text.Take(),
            "# HELP a_total What \"a\" is: one\\\\two\\nlines.\n"
            "# TYPE a_total counter\n"
            "a_total{x=\"1\",y=\"2\"} 3\n"
            "a_total 0.1\n"
            "# HELP b B.\n"
            "# TYPE b gauge\n"
            "b -Inf\n");
}

TEST(MetricText, EscapesLabelsAndMakesThemUtf8) {
  MetricText text;
  text.Family("a", MetricText::Type::kGauge, "A.");
  text.Sample(1, {{"host", "back\\slash \"quoted\"\nline"}});
  text.Sample(1, {{"host", "caf\xc3\xa9"}});
  text.Sample(1, {{"host", "broken \xff end"}});
  text.Sample(1, {{"host", "cut \xe2\x82"}});
  const std::string taken = text.Take();
  EXPECT_THAT(taken, HasSubstr("{host=\"back\\\\slash \\\"quoted\\\"\\nline\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"caf\xc3\xa9\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"broken \xef\xbf\xbd end\"} 1\n"));
  EXPECT_THAT(taken, HasSubstr("{host=\"cut \xef\xbf\xbd\"} 1\n"));
}

TEST(MetricText, WritesNumbersThatReadBackTheSame) {
  for (const double value : {0.1, 1e300, 123456789012345.0, 1e-300, 1.0 / 3, 9007199254740993.0}) {
    MetricText text;
    text.Gauge("a", "A.", value);
    const std::string taken = text.Take();
    EXPECT_EQ(std::stod(taken.substr(taken.rfind(' '))), value) << taken;
  }
}

TEST(MetricHistogram, CountsEachValueInTheFirstBucketThatHoldsIt) {
  MetricHistogram histogram({0.5, 1, 2});
  for (const double value : {0.5, 0.50001, 1.0, 2.5, -1.0}) histogram.Observe(value);
  histogram.Observe(2, 3);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 2, 3, 1));
  MetricText text;
  text.Family("h", MetricText::Type::kHistogram, "H.");
  text.Sample(histogram, {{"kind", "k"}});
  EXPECT_EQ(text.Take(),
            "# HELP h H.\n"
            "# TYPE h histogram\n"
            "h_bucket{kind=\"k\",le=\"0.5\"} 2\n"
            "h_bucket{kind=\"k\",le=\"1\"} 4\n"
            "h_bucket{kind=\"k\",le=\"2\"} 7\n"
            "h_bucket{kind=\"k\",le=\"+Inf\"} 8\n"
            "h_sum{kind=\"k\"} 9.50001\n"
            "h_count{kind=\"k\"} 8\n");
}

TEST(MetricHistogram, TakesWhatOthersCounted) {
  MetricHistogram histogram({1, 2});
  const std::vector<uint64_t> counts = {1, 2, 3, 4, 5};
  histogram.Set(counts, 77);
  histogram.Set(counts, 77);
  EXPECT_THAT(histogram.counts(), ElementsAre(1, 2, 12));
  EXPECT_EQ(histogram.sum(), 77);
}

TEST(MetricBounds, ReachFromAMillisecondToWhatIsAskedFor) {
  EXPECT_EQ(SecondsBounds(2560).front(), 0.001);
  EXPECT_EQ(SecondsBounds(2560).back(), 2560);
  EXPECT_EQ(SecondsBounds(80).back(), 80);
  EXPECT_THAT(CountBounds(20), ElementsAre(1, 2, 5, 10, 20));
}

TEST(LabelledCounts, KeepABoundedNumberOfValues) {
  LabelledCounts counts(2);
  for (const char* value : {"a", "b", "c", "d", "a", "c"}) counts.Add(value);
  EXPECT_EQ(counts.values().size(), 3u);
  EXPECT_EQ(counts.values().at("a"), 2);
  EXPECT_EQ(counts.values().at("b"), 1);
  EXPECT_EQ(counts.values().at("other"), 3);
}

}  // namespace
}  // namespace stagecoach
