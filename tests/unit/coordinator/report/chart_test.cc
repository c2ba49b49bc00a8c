#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "coordinator/report/chart_style.h"
#include "coordinator/report/row_chart.h"
#include "coordinator/report/text_width.h"
#include "coordinator/report/xy_chart.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/report/xml_check.h"

namespace stagecoach {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr double kInf = std::numeric_limits<double>::infinity();

ChartPoint At(double x, double y) {
  ChartPoint point;
  point.x = x;
  point.y = point.y_low = point.y_high = y;
  point.label = "<8>";
  point.tooltip = "a & b";
  return point;
}

XyChart ChartOf(const std::vector<ChartPoint>& points, ScaleKind kind) {
  XyChart chart;
  chart.title = "A \"title\" & <more>";
  chart.x.label = "x, <unit>";
  chart.y.label = "y";
  chart.x.kind = chart.y.kind = kind;
  chart.series.push_back({"one & <two>", points});
  chart.guides.push_back({"ideal", points});
  chart.bands.push_back({"band", points});
  return chart;
}

void ExpectPicture(const std::string& svg) {
  EXPECT_EQ(XmlProblem(svg), "");
  EXPECT_EQ(CoordinateProblem(svg), "");
}

TEST(XyChart, IsAWellFormedPictureWhateverTheNumbersAre) {
  const double nan = std::nan("");
  const std::vector<std::vector<ChartPoint>> hostile = {{},
                                                        {At(0, 0)},
                                                        {At(3, 7)},
                                                        {At(3, 7), At(3, 7)},
                                                        {At(nan, 1), At(1, nan)},
                                                        {At(kInf, -kInf), At(1, 1)},
                                                        {At(-5, -5), At(5, 5)},
                                                        {At(1e300, 1e300), At(1e-300, 1e-300)},
                                                        {At(0, 1), At(1, 0)}};
  for (const std::vector<ChartPoint>& points : hostile) {
    for (ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog}) {
      XyChart chart = ChartOf(points, kind);
      for (bool square : {false, true}) {
        chart.square = square;
        ExpectPicture(DrawXyChart(chart, true));
        ExpectPicture(DrawXyChart(chart, false));
      }
      chart.x.marks = {kInf, 0};
      ExpectPicture(DrawXyChart(chart, false));
    }
  }
}

TEST(XyChart, DrawsAMarkerForEachPointAndALineThroughThem) {
  XyChart chart;
  chart.series.push_back({"", {At(1, 1), At(2, 2), At(std::nan(""), 3)}});
  const std::string svg = DrawXyChart(chart, false);
  const auto count = [&](const std::string& what) {
    const std::regex pattern(what);
    return std::distance(std::sregex_iterator(svg.begin(), svg.end(), pattern), std::sregex_iterator());
  };
  EXPECT_EQ(count("<circle"), 2);
  EXPECT_EQ(count("<polyline"), 1);
}

TEST(XyChart, DrawsAnErrorBarWhereTheEndsDiffer) {
  XyChart chart;
  chart.series.push_back({"", {At(1, 10)}});
  const std::string without = DrawXyChart(chart, false);
  chart.series[0].points[0].y_low = 9;
  chart.series[0].points[0].y_high = 12;
  EXPECT_GT(DrawXyChart(chart, false).size(), without.size());
}

TEST(XyChart, TellsSeriesApartWithoutColour) {
  for (int a = 0; a < kMostSeries; ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_NE(StyleOf(a).shape, StyleOf(b).shape);
      EXPECT_STRNE(StyleOf(a).dashes, StyleOf(b).dashes);
    }
  }
}

TEST(RowChart, IsAWellFormedPictureWhateverTheNumbersAre) {
  for (ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog}) {
    RowChart chart;
    chart.id = "rows";
    chart.title = "<rows>";
    chart.axis.kind = kind;
    chart.parts = {{"a", PartFill::kSolid}, {"b", PartFill::kLines}, {"c", PartFill::kDots}};
    chart.marks = {{"m", MarkerShape::kStar, false, 0}, {"t", MarkerShape::kCircle, true, 0}};
    chart.join_marks = true;
    ExpectPicture(DrawRowChart(chart, true));
    for (double value : {0.0, 1.0, -1.0, kInf, std::nan(""), 1e300}) {
      ChartRow row;
      row.heading = std::string(300, 'w') + " and <more>";
      row.label = "a label that is much longer than its column <b>";
      row.note = std::string(200, 'n');
      row.parts = {value, 1, value};
      row.marks = {value, 2};
      row.low = value;
      row.high = 3;
      row.hollow = value == 1;
      chart.rows.push_back(row);
    }
    ExpectPicture(DrawRowChart(chart, true));
    chart.axis.marks = {0, 50, 100};
    ExpectPicture(DrawRowChart(chart, false));
  }
}

TEST(RowChart, BeginsBarsAtZeroWhereTheAxisGoesBeyond) {
  RowChart chart;
  chart.axis.marks = {0, 50, 100};
  chart.parts = {{"", PartFill::kSolid}};
  chart.rows.emplace_back().parts = {50};
  const std::string svg = DrawRowChart(chart, false);
  std::vector<double> ticks;
  const std::regex tick("<line x1=\"([0-9.]+)\"[^>]*stroke=\"#ddd\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), tick), end; at != end; ++at)
    ticks.push_back(std::stod((*at)[1]));
  ASSERT_EQ(ticks.size(), 3u);
  std::smatch bar;
  ASSERT_TRUE(std::regex_search(svg, bar, std::regex("<rect x=\"([0-9.]+)\"[^>]* width=\"([0-9.]+)\"")));
  EXPECT_NEAR(std::stod(bar[1]), ticks[0], 0.02);
  EXPECT_NEAR(std::stod(bar[2]), ticks[1] - ticks[0], 0.02);
}

TEST(TextWidth, WrapsAndElidesToTheWidth) {
  EXPECT_EQ(TextWidth("", 12), 0);
  EXPECT_GT(TextWidth("WWW", 12), TextWidth("iii", 12));
  EXPECT_EQ(ElideText("short", 100, 12), "short");
  EXPECT_THAT(ElideText("a rather long label", 50, 12), HasSubstr("\xE2\x80\xA6"));
  EXPECT_LE(TextWidth(ElideText("a rather long label", 50, 12), 12), 50 + 1e-9);
  EXPECT_EQ(ElideText("模型模型", 40, 12).substr(0, 3), "模");  // cut between characters
  EXPECT_EQ(ElideText("", -2, 12), "");
  EXPECT_EQ(ElideText("label", 3, 12), "");
  EXPECT_THAT(WrapText("one two  three", 50, 12), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("", 40, 12), ElementsAre());
}

}  // namespace
}  // namespace stagecoach
