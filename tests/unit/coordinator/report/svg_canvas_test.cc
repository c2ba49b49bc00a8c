#include "coordinator/report/svg_canvas.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/report/xml_check.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EscapeMarkup, LeavesNothingThatEndsATextOrAnAttribute) {
  EXPECT_EQ(EscapeMarkup("<b a=\"x\" c='y'>&amp;"), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;amp;");
}

TEST(EscapeMarkup, KeepsCharactersOfEveryScript) {
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

TEST(SvgNumber, HasTwoDigitsAtMostAndNoTrailingZeros) {
  EXPECT_EQ(SvgNumber(1), "1");
  EXPECT_EQ(SvgNumber(1.5), "1.5");
  EXPECT_EQ(SvgNumber(2.0 / 3), "0.67");
  EXPECT_EQ(SvgNumber(-0.001), "0");
  EXPECT_EQ(SvgNumber(100), "100");
}

TEST(SvgNumber, TakesNothingThatIsNoNumber) { EXPECT_DEATH(SvgNumber(1.0 / 0.0), "isfinite"); }

TEST(SvgCanvas, MakesAWellFormedPictureOfEveryShape) {
  SvgCanvas canvas;
  canvas.DefinePattern("p", SvgCanvas::Pattern::kLines, "#000");
  canvas.DefinePattern("q", SvgCanvas::Pattern::kDots, "#000");
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
