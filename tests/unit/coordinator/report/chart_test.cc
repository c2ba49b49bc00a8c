#include "coordinator/report/chart/chart.h"

#include <limits>
#include <regex>
#include <vector>

#include "coordinator/report/chart/axis_scale.h"
#include "coordinator/report/chart/svg_canvas.h"
#include "tests/testing/matchers.h"
#include "tests/testing/report/xml_check.h"

namespace stagecoach {
namespace {

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
    RowChart chart = {.id = "rows", .title = "<rows>"};
    chart.axis.kind = kind;
    chart.parts = {{"a", PartFill::kSolid}, {"b", PartFill::kLines}, {"c", PartFill::kDots}, {"d", PartFill::kCrosses}};
    chart.marks = {{"m", MarkerShape::kStar, false, 0}, {"t", MarkerShape::kCircle, true, 0}};
    chart.join_marks = true;
    ExpectPicture(DrawRowChart(chart, true));
    for (double value : {0.0, 1.0, -1.0, kInf, std::nan(""), 1e300}) {
      ChartRow row;
      row.heading = std::string(300, 'w') + " and <more>";
      row.label = "a label that is much longer than its column <b>";
      row.note = std::string(200, 'n');
      row.parts = {value, 1, value, 1};
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

std::vector<std::string> Labels(const AxisScale& scale) {
  std::vector<std::string> labels;
  for (const AxisTick& tick : scale.ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(AxisScale, MarksRoundNumbersOrTheGivenOnesOnceEach) {
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {3, 87}, true, 6)),
              ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {0.31, 0.38}, false, 6)),
              ElementsAre("0.3", "0.32", "0.34", "0.36", "0.38"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {-7, 13}, false, 6)),
              ElementsAre("-10", "-5", "0", "5", "10", "15"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLinear, {26000}, true, 4)),
              ElementsAre("0", "10k", "20k", "30k"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLog, {3, 87}, true, 8)),
              ElementsAre("2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(Labels(AxisScale::ForValues(ScaleKind::kLog, {0.02, 900}, true, 8)),
              ElementsAre("0.01", "0.1", "1", "10", "100", "1000"));
  EXPECT_THAT(Labels(AxisScale::AtValues(ScaleKind::kLog, {4, 1, 2, 1})), ElementsAre("1", "2", "4"));
}

TEST(AxisScale, PutsItsEndsAtItsPixels) {
  AxisScale scale = AxisScale::ForValues(ScaleKind::kLinear, {0, 10}, true, 6);
  scale.SetPixels(100, 200);
  EXPECT_EQ(scale.At(0), 100);
  EXPECT_EQ(scale.At(10), 200);
  EXPECT_EQ(scale.At(5), 150);
  EXPECT_EQ(scale.At(1e9), 200);
  AxisScale log = AxisScale::ForValues(ScaleKind::kLog, {1, 100}, true, 3);
  log.SetPixels(0, 100);
  EXPECT_NEAR(log.At(10), 50, 1e-9);
  EXPECT_EQ(log.At(0), 0);
}

TEST(AxisScale, HasASpanWhateverTheValuesAre) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<std::vector<double>> hostile = {{},
                                                    {0},
                                                    {5},
                                                    {5, 5, 5},
                                                    {-3},
                                                    {nan},
                                                    {inf, -inf},
                                                    {0, 0},
                                                    {1e-300, 1e300},
                                                    {1e300},
                                                    {-1e308, 1e308},
                                                    {std::numeric_limits<double>::denorm_min()},
                                                    {1, 1 + 1e-15}};
  for (const std::vector<double>& values : hostile) {
    for (ScaleKind kind : {ScaleKind::kLinear, ScaleKind::kLog}) {
      for (bool from_zero : {false, true}) {
        for (int ticks : {2, 3, 8}) {
          AxisScale scale = AxisScale::ForValues(kind, values, from_zero, ticks);
          scale.SetPixels(0, 400);
          SCOPED_TRACE(::testing::PrintToString(values) + (kind == ScaleKind::kLog ? " log" : " linear"));
          EXPECT_LT(scale.low(), scale.high());
          EXPECT_GE(scale.ticks().size(), 1u);
          EXPECT_LE(scale.ticks().size(), static_cast<size_t>(ticks) + 1);
          for (double value : values) {
            EXPECT_GE(scale.At(value), 0);
            EXPECT_LE(scale.At(value), 400);
          }
        }
      }
    }
  }
}

TEST(TickLabel, IsShort) {
  EXPECT_EQ(TickLabel(0), "0");
  EXPECT_EQ(TickLabel(1200), "1200");
  EXPECT_EQ(TickLabel(12000), "12k");
  EXPECT_EQ(TickLabel(0.25), "0.25");
  EXPECT_EQ(TickLabel(3e9), "3G");
  EXPECT_EQ(TickLabel(0.1 + 0.2), "0.3");
}

TEST(EscapeMarkup, LeavesNothingThatEndsATextOrAnAttributeAndKeepsEveryScript) {
  EXPECT_EQ(EscapeMarkup("<b a=\"x\" c='y'>&amp;"), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;amp;");
  EXPECT_EQ(EscapeMarkup("2 × µ 模型 \xF0\x9F\x9A\x82"), "2 × µ 模型 \xF0\x9F\x9A\x82");
}

TEST(EscapeMarkup, ReplacesWhatIsNoUtf8AndWhatXmlForbids) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(EscapeMarkup(std::string("a\0b", 3)), "a" + replacement + "b");
  EXPECT_EQ(EscapeMarkup("\x1b[1m"), replacement + "[1m");
  EXPECT_EQ(EscapeMarkup("\xC3("), replacement + "(");                               // cut off
  EXPECT_EQ(EscapeMarkup("\xC0\xBC"), replacement + replacement);                    // '<' in too many bytes
  EXPECT_EQ(EscapeMarkup("\xED\xA0\x80"), replacement + replacement + replacement);  // half of a pair
  EXPECT_EQ(EscapeMarkup("\xEF\xBF\xBE"), replacement + replacement + replacement);  // U+FFFE
  EXPECT_EQ(EscapeMarkup("\xE2\x82"), replacement + replacement);
}

TEST(SvgNumber, HasTwoDigitsAtMostAndNoTrailingZerosAndIsFinite) {
  EXPECT_EQ(SvgNumber(1), "1");
  EXPECT_EQ(SvgNumber(1.5), "1.5");
  EXPECT_EQ(SvgNumber(2.0 / 3), "0.67");
  EXPECT_EQ(SvgNumber(-0.001), "0");
  EXPECT_EQ(SvgNumber(100), "100");
  EXPECT_DEATH(SvgNumber(1.0 / 0.0), "isfinite");
}

TEST(SvgCanvas, MakesAWellFormedPictureOfEveryShape) {
  SvgCanvas canvas;
  canvas.DefinePattern("p", SvgCanvas::Pattern::kLines, "#000");
  canvas.DefinePattern("q", SvgCanvas::Pattern::kDots, "#000");
  canvas.DefinePattern("r", SvgCanvas::Pattern::kCrosses, "#000");
  canvas.BeginTooltip("<&>\"");
  for (int shape = 0; shape < kMarkerShapes; ++shape) {
    canvas.Marker({10, 10}, static_cast<MarkerShape>(shape), "#123456", shape % 2 == 0, 4);
  }
  canvas.EndTooltip();
  canvas.Polyline({{1, 1}}, "");  // nothing to join
  canvas.Polyline({{1, 1}, {2, 2}}, "stroke=\"#000\"");
  canvas.Text({1, 1}, "</text><script>", TextAnchor::kMiddle, 12, "");
  const std::string svg = canvas.Finish(100, 50, "a \"name\"");
  EXPECT_EQ(XmlProblem(svg), "");
  EXPECT_EQ(CoordinateProblem(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 100 50\""));
}

}  // namespace
}  // namespace stagecoach
