#include "coordinator/launch/launcher_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stagecoach {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kDashes[] = "--------------------------------------------------------------------------\n";

TEST(LauncherOutput, ShowsWhatRanksSayAndKeepsBackWhatMpirunSays) {
  LauncherOutput output;
  EXPECT_THAT(output.Feed("stage_worker: hel"), IsEmpty());
  EXPECT_THAT(output.Feed("lo\n\n"), ElementsAre("stage_worker: hello"));
  EXPECT_THAT(output.Feed(absl::StrCat(kDashes, "Primary job  terminated normally, but\n", kDashes,
                                       "[node:123] ORTE_ERROR_LOG\n", "[info] ours\n", "last")),
              ElementsAre("[info] ours"));
  EXPECT_THAT(output.FeedEnd(), ElementsAre("last"));
  EXPECT_EQ(output.Tail(),
            "stage_worker: hello\nPrimary job  terminated normally, but\n[node:123] ORTE_ERROR_LOG\n[info] ours\nlast");
}

TEST(LauncherOutput, KeepsTheLastFiftyLinesAndCutsEndlessOnes) {
  LauncherOutput output;
  for (int i = 0; i < 120; ++i) output.Feed(absl::StrCat("line ", i, "\n"));
  EXPECT_THAT(output.Tail(), HasSubstr("line 70\n"));
  EXPECT_THAT(output.Tail(), Not(HasSubstr("line 69\n")));
  EXPECT_EQ(output.Feed(std::string(100000, 'x')).size(), 6u);
}

TEST(LauncherOutput, ReadsWhichRankASignalEnded) {
  LauncherOutput output;
  output.Feed(absl::StrCat(
      kDashes, "mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal 9 (Killed).\n", kDashes));
  EXPECT_EQ(output.death(), "rank 2 (stage 1) on node7 was ended by signal 9 (Killed)");
}

TEST(LauncherOutput, ReadsWhichRankEndedWithACode) {
  LauncherOutput output;
  output.Feed(absl::StrCat(
      kDashes, "The first process to do so was:\n\n  Process name: [[16773,1],0]\n  Exit code:    75\n", kDashes));
  EXPECT_EQ(output.death(), "rank 0 (the coordinator) ended with exit code 75");
}

TEST(LauncherOutput, BelievesOnlyMpirunAboutADeath) {
  LauncherOutput output;
  output.Feed("mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal 9 (Killed).\n");
  EXPECT_EQ(output.death(), "");
}

TEST(LauncherOutput, TellsAStageThatCrashedFromOneThatWasKilled) {
  const auto crashed = [](int rank, const char* signal) {
    LauncherOutput output;
    output.Feed(absl::StrCat(kDashes, "mpirun noticed that process rank ", rank,
                             " with PID 0 on node node7 exited on signal ", signal, ".\n", kDashes));
    EXPECT_FALSE(output.death().empty());
    return output.stage_crashed();
  };
  EXPECT_TRUE(crashed(1, "11 (Segmentation fault)"));
  EXPECT_TRUE(crashed(3, "6 (Aborted)"));
  EXPECT_TRUE(crashed(2, "7 (Bus error)"));
  EXPECT_FALSE(crashed(1, "9 (Killed)"));
  EXPECT_FALSE(crashed(1, "15 (Terminated)"));
  EXPECT_FALSE(crashed(0, "11 (Segmentation fault)")) << "the coordinator's crash accuses no request";
}

}  // namespace
}  // namespace stagecoach
