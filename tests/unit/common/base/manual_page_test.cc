#include "common/base/manual_page.h"

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

ManualPage Page() {
  return {.name = "wheel",
          .summary = "turns",
          .synopsis = {"wheel [--speed N]"},
          .sections = {{.title = "Options",
                        .text = ".so is no request, 'nor is this\nand C:\\path is a path",
                        .entries = {{{"-s", "--speed"}, "slow|fast", "of turning"}}},
                       {.title = "Examples", .commands = {"wheel -s fast"}}},
          .see_also = {"axle", "coach"}};
}

TEST(ManualPage, HasThePartsOfASectionOnePage) {
  EXPECT_THAT(ManualRoff(Page(), "1.2"),
              AllOf(StartsWith(".TH \"WHEEL\" 1 \"\" \"Stagecoach 1.2\" \"User Commands\"\n"),
                    HasSubstr(".SH NAME\nwheel \\- turns\n"), HasSubstr(".SH SYNOPSIS\n\\&wheel [\\-\\-speed N]\n"),
                    HasSubstr(".TP\n\\fB\\-s\\fR, \\fB\\-\\-speed\\fR \\fIslow|\\:fast\\fR\nof turning\n"),
                    HasSubstr(".SH \"EXAMPLES\"\n.nf\n.RS 4\n\\&wheel \\-s fast\n.RE\n.fi\n"),
                    HasSubstr("\\fBaxle\\fR(1),\n\\fBcoach\\fR(1)\n")));
}

TEST(ManualPage, TakesNoTextForARequestOrAnEscape) {
  EXPECT_THAT(ManualRoff(Page(), "1.2"),
              HasSubstr("\n\\&.so is no request, \\(aqnor is this\nand C:\\epath is a path\n"));
}

TEST(ManualPage, ForATerminalItIsPlain) {
  EXPECT_THAT(ManualText(Page()), AllOf(StartsWith("wheel: turns\n  wheel [--speed N]\n"),
                                        HasSubstr("  -s, --speed slow|fast   of turning\n")));
}

}  // namespace
}  // namespace stagecoach
