#include "coordinator/launch/launcher_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kDashes[] = "--------------------------------------------------------------------------\n";

TEST(LauncherOutput, ShowsWhatRanksSayAndKeepsBackWhatMpirunSays) {
  LauncherOutput output(std::make_unique<OpenMpiWords>());
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
  LauncherOutput output(std::make_unique<OpenMpiWords>());
  for (int i = 0; i < 120; ++i) output.Feed(absl::StrCat("line ", i, "\n"));
  EXPECT_THAT(output.Tail(), HasSubstr("line 70\n"));
  EXPECT_THAT(output.Tail(), Not(HasSubstr("line 69\n")));
  EXPECT_EQ(output.Feed(std::string(100000, 'x')).size(), 6u);
}

TEST(LauncherOutput, ReadsWhichRankASignalEnded) {
  LauncherOutput output(std::make_unique<OpenMpiWords>());
  output.Feed(absl::StrCat(
      kDashes, "mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal 9 (Killed).\n", kDashes));
  ASSERT_TRUE(output.death().has_value());
  EXPECT_EQ(output.death()->rank, 2);
  EXPECT_EQ(output.death()->how, "on node7 was ended by signal 9 (Killed)");
}

TEST(LauncherOutput, ReadsWhichRankEndedWithACode) {
  LauncherOutput output(std::make_unique<OpenMpiWords>());
  output.Feed(absl::StrCat(
      kDashes, "The first process to do so was:\n\n  Process name: [[16773,1],0]\n  Exit code:    75\n", kDashes));
  ASSERT_TRUE(output.death().has_value());
  EXPECT_EQ(output.death()->rank, 0);
  EXPECT_EQ(output.death()->how, "ended with exit code 75");
  EXPECT_FALSE(output.death()->crashed);
}

TEST(LauncherOutput, BelievesOnlyMpirunAboutADeath) {
  LauncherOutput output(std::make_unique<OpenMpiWords>());
  output.Feed("mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal 9 (Killed).\n");
  EXPECT_FALSE(output.death().has_value());
}

TEST(LauncherOutput, TellsARankThatCrashedFromOneThatWasKilled) {
  const auto crashed = [](const char* signal) {
    LauncherOutput output(std::make_unique<OpenMpiWords>());
    output.Feed(absl::StrCat(kDashes, "mpirun noticed that process rank 2 with PID 0 on node node7 exited on signal ",
                             signal, ".\n", kDashes));
    return output.death().value().crashed;
  };
  EXPECT_TRUE(crashed("11 (Segmentation fault)"));
  EXPECT_TRUE(crashed("6 (Aborted)"));
  EXPECT_FALSE(crashed("7 (Bus error)")) << "memory or a file that went away under the rank";
  EXPECT_FALSE(crashed("9 (Killed)"));
  EXPECT_FALSE(crashed("15 (Terminated)"));
}

TEST(RankName, SaysWhichStageItIsWhereThatIsKnown) {
  EXPECT_EQ(RankName(0, std::nullopt), "rank 0 (the coordinator)");
  EXPECT_EQ(RankName(3, std::nullopt), "rank 3");
  EXPECT_EQ(RankName(3, 0), "rank 3 (stage 0)");
}

TEST(LauncherOutput, ReadsSrunsWordsToo) {
  LauncherOutput output(std::make_unique<SlurmWords>());
  EXPECT_THAT(output.Feed("stage_worker: hello\nsrun: error: node2: task 3: Segmentation fault\n"
                          "srun: error: node1: tasks 0-1: Killed\n"),
              ElementsAre("stage_worker: hello"));
  ASSERT_TRUE(output.death().has_value());
  EXPECT_EQ(output.death()->rank, 3);
  EXPECT_EQ(output.death()->how, "on node2 ended: Segmentation fault");
  EXPECT_TRUE(output.death()->crashed);
}

TEST(LauncherOutput, ReadsSrunsWordsOfSeveralRanksAtOnce) {
  for (const char* tasks : {"2-3", "2,4", "2,4-5"}) {
    LauncherOutput output(std::make_unique<SlurmWords>());
    output.Feed(absl::StrCat("srun: error: node[1-2]: tasks ", tasks, ": Killed\n"));
    ASSERT_TRUE(output.death().has_value()) << tasks;
    EXPECT_EQ(output.death()->rank, 2);
    EXPECT_EQ(output.death()->how, "on node[1-2] ended, as others did: Killed");
  }
}

}  // namespace
}  // namespace stagecoach
