#include "coordinator/bench/sweep_plan.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

SweepLists Lists() {
  SweepLists lists;
  lists.policies = {Policy::kInterleaved};
  return lists;
}

TEST(SweepPlan, IsTheProductOfItsLists) {
  SweepLists lists = Lists();
  lists.stages = {1, 2, 4};
  lists.concurrency = {1, 32};
  lists.prompts = {"128", "1024"};
  lists.repetitions = 3;
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 3u * 2 * 2 * 3);
  EXPECT_EQ(points[0].stages, 1);
  EXPECT_EQ(points[0].concurrency, 1);
  EXPECT_EQ(points[0].max_num_seqs, 32);
  EXPECT_EQ(points[0].requests, 8);
  EXPECT_EQ(points[3].concurrency, 32);
  EXPECT_EQ(points[3].prompt, "1024");
  EXPECT_EQ(points[3].requests, 128);
}

TEST(SweepPlan, RefusesMorePointsThanAnybodyWillMeasure) {
  SweepLists lists = Lists();
  EXPECT_TRUE(CheckPointCount(lists).ok());
  lists.stages.assign(100, 1);
  lists.concurrency.assign(1000, 1);
  EXPECT_TRUE(CheckPointCount(lists).ok());
  lists.repetitions = 1000;
  lists.prompts.assign(1000, "128");
  EXPECT_THAT(std::string(CheckPointCount(lists).message()),
              HasSubstr("the lists make 1e+11 points, expected at most 100000"));
}

TEST(SweepPlan, MeasuresAllPointsOnceBeforeItRepeatsOne) {
  SweepLists lists = Lists();
  lists.stages = {1, 2};
  lists.repetitions = 2;
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].repetition, 0);
  EXPECT_EQ(points[1].repetition, 0);
  EXPECT_EQ(points[1].stages, 2);
  EXPECT_EQ(points[2].repetition, 1);
}

TEST(SweepPlan, SharesALaunchBetweenTheLoadsOfAJob) {
  SweepLists lists = Lists();
  lists.stages = {1, 2};
  lists.concurrency = {1, 8};
  lists.repetitions = 2;
  const std::vector<SweepLaunch> launches = LaunchesOf(PointsOf(lists));
  ASSERT_EQ(launches.size(), 4u);
  for (const SweepLaunch& launch : launches) {
    EXPECT_EQ(launch.points.size(), 2u);
    EXPECT_EQ(JobOf(launch.points[0]), JobOf(launch.points[1]));
    EXPECT_NE(SweepKey(launch.points[0]), SweepKey(launch.points[1]));
  }
}

TEST(SweepPlan, GivesEveryEmulatedLinkALaunchOfItsOwn) {
  SweepLists lists = Lists();
  const EmulatedLink slow = {.latency_s = 0.002, .bytes_per_s = 125e6};
  lists.links = {EmulatedLink(), slow};
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].emulated_link, EmulatedLink());
  EXPECT_EQ(points[1].emulated_link, slow);
  EXPECT_THAT(PointName(points[1]), HasSubstr("emulated latency=2ms,bandwidth=1Gbit"));
  EXPECT_EQ(LaunchesOf(points).size(), 2u);
}

TEST(SweepPlan, TakesAValueThatIsGivenTwiceOnce) {
  SweepLists lists = Lists();
  lists.stages = {2, 2};
  EXPECT_EQ(PointsOf(lists).size(), 1u);
}

TEST(SweepPlan, MeasuresAnOpenLoopOnceWhateverTheConcurrency) {
  SweepLists lists = Lists();
  lists.arrivals = {"closed", "poisson:2", "trace:t.jsonl"};
  lists.concurrency = {1, 4};
  lists.prompts = {"16", "32"};
  const std::vector<SweepConfig> points = PointsOf(lists);
  ASSERT_EQ(points.size(), 4u + 2 + 1);
  EXPECT_EQ(points[4].arrivals, "poisson:2");
  EXPECT_EQ(points[4].concurrency, 0);
  EXPECT_EQ(points[4].requests, kRequestsOfPoisson);
  EXPECT_EQ(points[6].prompt, "trace");
  EXPECT_EQ(points[6].requests, 0);
}

TEST(SweepPlan, DrawsTheSameRequestsForEveryRepetition) {
  SweepConfig point;
  point.arrivals = "poisson:10";
  point.prompt = "uniform:10:100";
  point.output = "4";
  point.requests = 20;
  point.seed = 3;
  const auto first = RequestsOf(point);
  point.repetition = 1;
  const auto second = RequestsOf(point);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->size(), 20u);
  EXPECT_EQ(*first, *second);
  EXPECT_LE(ContextOf(*first), 104);
  point.seed = 4;
  EXPECT_NE(*RequestsOf(point), *first);
}

TEST(SweepPlan, LetsRequestsArriveUntilTheDurationIsOver) {
  SweepConfig point;
  point.arrivals = "poisson:100";
  point.prompt = point.output = "1";
  point.duration_s = 2;
  const auto requests = RequestsOf(point);
  ASSERT_TRUE(requests.ok());
  EXPECT_GT(requests->size(), 100u);
  EXPECT_LT(requests->size(), 300u);
  EXPECT_LE(requests->back().arrival_s, 2);
  point.duration_s = 1e-9;
  EXPECT_THAT(std::string(RequestsOf(point).status().message()), HasSubstr("no request of 'poisson:100' arrives"));
}

TEST(SweepPlan, TakesATracesRequestsFromItsFile) {
  const std::string path = ::testing::TempDir() + "/sweep_plan_trace.jsonl";
  std::ofstream(path) << R"({"arrival_s":0,"prompt_tokens":5,"output_tokens":6})"
                      << "\n"
                      << R"({"arrival_s":1,"prompt_tokens":50,"output_tokens":7})"
                      << "\n"
                      << R"({"arrival_s":9,"prompt_tokens":500,"output_tokens":8})"
                      << "\n";
  SweepConfig point;
  point.arrivals = "trace:" + path;
  point.duration_s = 2;
  const auto requests = RequestsOf(point);
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_EQ(requests->size(), 2u);
  EXPECT_EQ(ContextOf(*requests), 57);
}

}  // namespace
}  // namespace stagecoach
