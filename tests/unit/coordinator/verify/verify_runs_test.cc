#include "coordinator/verify/verify_runs.h"

#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Split = std::vector<int64_t>;

TEST(VerifyRuns, OtherSplitsAreOthersAndOfAllLayers) {
  EXPECT_THAT(OtherSplits({4, 4}, 3), ElementsAre(Split{5, 3}, Split{1, 7}, Split{7, 1}));
  EXPECT_THAT(OtherSplits({2, 2, 2}, 9),
              ElementsAre(Split{2, 3, 1}, Split{1, 1, 4}, Split{4, 1, 1}, Split{2, 1, 3}, Split{3, 3}));
  EXPECT_THAT(OtherSplits({1, 1}, 2), IsEmpty());
  EXPECT_THAT(OtherSplits({1, 2}, 9), ElementsAre(Split{2, 1}));
  EXPECT_THAT(OtherSplits({8}, 2), IsEmpty());
  EXPECT_THAT(OtherSplits({4, 4}, 0), IsEmpty());
  for (const Split& planned : {Split{3, 9, 1, 7, 2}, Split{1, 1, 1, 1}, Split{10, 1}}) {
    for (const Split& split : OtherSplits(planned, 64)) {
      EXPECT_NE(split, planned);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}),
                std::accumulate(planned.begin(), planned.end(), int64_t{0}));
      EXPECT_GT(*std::min_element(split.begin(), split.end()), 0);
    }
  }
}

pb::ConfigureJob ChunksOf(int32_t prefill_chunk, int32_t most_rows = 512) {
  pb::ConfigureJob job;
  job.set_prefill_chunk(prefill_chunk);
  job.set_max_num_batched_tokens(most_rows);
  return job;
}

TEST(VerifyRuns, LeaveOutWhatWouldBeTheSameAgain) {
  std::vector<std::string> names;
  for (const VerifyRun& run : RunsBeside({8}, ChunksOf(64), {{7, 64, 7}, 2, 100})) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("one after the other", "chunks of 7", "restarted"));
  names.clear();
  for (const VerifyRun& run : RunsBeside({4, 4}, ChunksOf(512), {{7, 64, 7}, 1, 100})) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("one after the other", "chunks of 7", "chunks of 64", "restarted", "another split",
                                 "one stage"));
}

std::vector<std::string> LeftOut(const std::vector<VerifyRun>& runs) {
  std::vector<std::string> names;
  for (const VerifyRun& run : runs) {
    if (!run.left_out.empty()) names.push_back(run.name);
  }
  return names;
}

TEST(VerifyRuns, LeaveOutChunksThatCutNoPromptAndSplitsBetweenWhichStatesAreRounded) {
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7, 64}, 1, 65})), IsEmpty());
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7, 64}, 1, 64})), ElementsAre("chunks of 64"));
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(16), {{7, 64}, 1, 64})), IsEmpty())
      << "the planned chunks are shorter";
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512, 64), {{7, 64, 100}, 1, 300})),
              ElementsAre("chunks of 64", "chunks of 100"))
      << "steps have 64 rows anyway";
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7}, 1, 100, /*exact_wire=*/false})),
              ElementsAre("another split", "one stage"));
}

TEST(VerifyRuns, ALaunchIsThePlannedOneButForWhatTheRunChanges) {
  LaunchOptions launch;
  launch.stages = 0;
  launch.job.set_prefill_chunk(512);
  launch.job.set_context(100);
  launch.job.mutable_planned_for()->set_layers(8);
  const LaunchOptions same = LaunchOfRun({.name = "restarted"}, launch, {5, 3});
  EXPECT_EQ(same.stages, 2);
  EXPECT_THAT(same.job.layer_split(), ElementsAre(5, 3));
  EXPECT_TRUE(same.job.has_planned_for());
  EXPECT_EQ(same.job.prefill_chunk(), 512);
  VerifyRun other = {.name = "another split"};
  other.layer_split = {1, 7};
  EXPECT_THAT(LaunchOfRun(other, launch, {5, 3}).job.layer_split(), ElementsAre(1, 7));
  EXPECT_FALSE(LaunchOfRun(other, launch, {5, 3}).job.has_planned_for());
  VerifyRun one = {.name = "one stage"};
  one.one_stage = true;
  EXPECT_EQ(LaunchOfRun(one, launch, {5, 3}).stages, 1);
  EXPECT_THAT(LaunchOfRun(one, launch, {5, 3}).job.layer_split(), IsEmpty());
  VerifyRun chunks = {.name = "chunks of 7"};
  chunks.prefill_chunk = 7;
  EXPECT_EQ(LaunchOfRun(chunks, launch, {5, 3}).job.prefill_chunk(), 7);
  EXPECT_EQ(LaunchOfRun(chunks, launch, {5, 3}).job.context(), 100);
}

TEST(VerifyRuns, ARestartFindsEveryRequestElsewhere) {
  EXPECT_EQ(KeptTokens(0, 4, 16), 1);
  EXPECT_EQ(KeptTokens(1, 4, 16), 5);
  EXPECT_EQ(KeptTokens(3, 4, 16), 15);
  EXPECT_EQ(KeptTokens(2, 4, 2), 1);
  EXPECT_EQ(KeptTokens(0, 1, 16), 1);
}

}  // namespace
}  // namespace stagecoach
