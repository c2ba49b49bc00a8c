#include "coordinator/sim/sim_pipeline.h"

#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/sim/sim_cluster_testing.h"

namespace stagecoach {
namespace {

MicroBatch Decode(uint64_t number, int rows) {
  MicroBatch batch;
  batch.number = number;
  for (int i = 0; i < rows; ++i) {
    batch.slices.push_back({.sequence = static_cast<SequenceId>(i + 1), .start = 9, .count = 1, .tokens = {1}});
    batch.slices.back().sample = true;
  }
  return batch;
}

// Results until nothing comes any more, with the times at which they come.
std::vector<std::pair<double, StepResult>> Drain(SimPipeline* pipeline, VirtualClock* clock) {
  std::vector<std::pair<double, StepResult>> results;
  while (const std::optional<int64_t> next_ns = pipeline->NextNs(kNeverNs)) {
    clock->AdvanceTo(*next_ns);
    absl::StatusOr<std::optional<StepResult>> result = pipeline->Poll();
    if (!result.ok() || !result->has_value()) break;
    results.emplace_back(clock->now_s() * 1e3, **result);
  }
  return results;
}

// Micro-batches of so many rows each, submitted at once.
std::vector<std::pair<double, StepResult>> ResultsOf(const SimCluster& cluster, const std::vector<int>& rows) {
  VirtualClock clock;
  SimPipeline pipeline(&cluster, &clock, 0);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(pipeline.Submit(Decode(i, rows[i])).ok());
  if (rows[0] > 0) {
    EXPECT_FALSE((*pipeline.Poll()).has_value());
  }
  std::vector<std::pair<double, StepResult>> results = Drain(&pipeline, &clock);
  EXPECT_EQ(results.size(), rows.size());
  results.resize(rows.size(), {0, StepResult{.times = std::vector<StageTimes>(cluster.pipeline.stages.size())}});
  return results;
}

TEST(SimPipeline, AnswersWhatIsSampledAfterTheStagesTimes) {
  TestCluster cluster({0, 1}, {1, 2});
  const auto results = ResultsOf(cluster.sim, {3, 3});
  EXPECT_NEAR(results[0].first, 3, 1e-3);
  EXPECT_NEAR(results[1].first, 5, 1e-3);  // the second stage is the slow one
  const StepResult& second = results[1].second;
  EXPECT_EQ(second.number, 1u);
  ASSERT_EQ(second.sampled.size(), 3u);
  EXPECT_EQ(second.sampled[2].sequence, 3u);
  EXPECT_EQ(second.sampled[2].position, 10);
  ASSERT_EQ(second.times.size(), 2u);
  EXPECT_EQ(second.times[0].received_us, 0);
  EXPECT_EQ(second.times[0].start_us, 1000);
  EXPECT_EQ(second.times[0].end_us, 2000);
  EXPECT_EQ(second.times[1].start_us, 3000);
  EXPECT_EQ(second.times[1].end_us, 5000);
}

TEST(SimPipeline, StagesOfOneHostShareItsMemoryForAsLongAsTheyWorkAtOnce) {
  // Two stages on one host, of 2 and 4 ms when alone. The second micro-batch's first stage begins at 2 ms beside the
  // first one's second stage: both at half speed until the first stage is through, at 6 ms. Then 2 of the other's 4 ms
  // are left, to 8 ms; the second micro-batch's own 4 ms end at 12.
  TestCluster cluster({0, 0}, {2, 4});
  const auto results = ResultsOf(cluster.sim, {1, 1});
  EXPECT_NEAR(static_cast<double>(results[1].second.times[0].end_us), 6000, 1);
  EXPECT_NEAR(results[0].first, 8, 1e-3);
  EXPECT_NEAR(results[1].first, 12, 1e-3);
}

TEST(SimPipeline, AFrameTakesLatencyAndItsBytesAndTheNextOneWaitsForTheLink) {
  TestCluster cluster({0, 1});
  cluster.sim.pipeline.stages[0].link = {.latency_s = 0.010, .bytes_per_s = 1e6};  // a row of 4000 bytes: 4 ms
  cluster.sim.pipeline.stages[1].link.latency_s = 0.5;
  cluster.sim.pipeline.to_first_s = 0.25;
  const auto results = ResultsOf(cluster.sim, {1, 1});
  EXPECT_NEAR(results[0].first, 250 + 1 + 4 + 10 + 1 + 500, 1e-3);
  EXPECT_NEAR(results[1].first, 250 + 1 + 8 + 10 + 1 + 500, 1e-3);
}

TEST(SimPipeline, AStageTellsOfTheSendThatWasCompleteLastWhenItBegan) {
  TestCluster cluster({0, 1});
  cluster.sim.pipeline.stages[0].link = {.latency_s = 0, .bytes_per_s = 1.6e6};  // a row: 2.5 ms
  const auto results = ResultsOf(cluster.sim, {1, 1, 1, 1, 1, 1, 1, 1});
  // Frame k is ready at k + 1 ms and sent from the end of the one before it until 1 + 2.5 (k + 1) ms.
  const auto told = [&](size_t frame) {
    const StageTimes& times = results[frame].second.times[0];
    return std::pair(times.send_start_us, times.send_us);
  };
  EXPECT_EQ(told(3), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(told(4), std::pair(int64_t{1000}, int64_t{2500}));
  EXPECT_EQ(told(5), told(4));
  EXPECT_EQ(told(6), std::pair(int64_t{2000}, int64_t{4000}));
}

TEST(SimPipeline, WhoeverWaitsForAFrameHasItALittleLater) {
  TestCluster cluster({0, 1});
  cluster.sim.wake_s = 0.0001;
  const auto results = ResultsOf(cluster.sim, {1, 1});
  EXPECT_NEAR(results[0].first, 0.1 + 1 + 0.1 + 1 + 0.1, 1e-3);
  EXPECT_NEAR(results[1].first, results[0].first + 1, 1e-3);  // its frames came while the stages computed
}

TEST(SimPipeline, AStageThatIsToTakeLongerSleepsAndLeavesItsHostToTheOthers) {
  // Two stages on one host, of 2 and 4 ms when alone, and 3 ms more a step. The second micro-batch's first stage begins
  // at 5 ms, with the first one's second stage: both at half speed until the first stage sleeps, at 9 ms. Then 2 of the
  // other's 4 ms are left, to 11 ms, and it sleeps to 14. Only then it takes the second micro-batch: 4 + 3 ms.
  TestCluster cluster({0, 0}, {2, 4});
  cluster.sim.stage_delay_s = 0.003;
  const auto results = ResultsOf(cluster.sim, {1, 1});
  EXPECT_EQ(results[0].second.times[0].end_us, 5000);
  EXPECT_NEAR(static_cast<double>(results[1].second.times[0].end_us), 12000, 1);
  EXPECT_NEAR(results[0].first, 14, 1e-3);
  EXPECT_NEAR(results[1].first, 21, 1e-3);
}

TEST(SimPipeline, AMicroBatchWithoutRowsIsNotDelayed) {
  TestCluster cluster({0, 1});
  cluster.sim.stage_delay_s = 0.003;
  EXPECT_EQ(ResultsOf(cluster.sim, {0})[0].first, 0);
}

// Hosts 0 and 2 are in one rack, 1 and 3 are not: the frames of stages 0 and 2 leave it, those of stage 1 enter it. A
// row takes 4 ms on a link.
struct RackOfTwo : TestCluster {
  explicit RackOfTwo(double uplink_bytes_per_s) : TestCluster({0, 1, 2, 3}) {
    for (PipelineStage& stage : sim.pipeline.stages) stage.link = {.latency_s = 0, .bytes_per_s = 1e6};
    ShareUplinks({{uplink_bytes_per_s, {0, 2}}}, &sim.pipeline);
  }
};

TEST(SimNetwork, FramesThatCrossAnUplinkAtOnceEachTakeTwiceAsLong) {
  const RackOfTwo rack(1e6);
  SimNetwork network(&rack.sim.pipeline, 0);
  EXPECT_TRUE(network.SharesItsWay(0));
  EXPECT_TRUE(network.SharesItsWay(2));
  network.Begin(0, 1, 0);
  network.Begin(2, 1, 0);
  EXPECT_EQ(network.NextSentNs(), 8'000'000);
  EXPECT_THAT(network.TakeSent(8'000'000), ElementsAre(0, 2));
  EXPECT_EQ(network.FrameSent(0, 0, 8'000'000).arrives_ns, 8'000'000);
  // Nobody else's frames go the other way, and none at all after the last stage.
  EXPECT_FALSE(network.SharesItsWay(1));
  EXPECT_EQ(network.Send(1, 0, 1, 0).arrives_ns, 4'000'000);
  EXPECT_FALSE(network.SharesItsWay(3));
}

TEST(SimNetwork, AnUplinkThatHasRoomForAllLinksIsAsGoodAsNone) {
  for (const double bytes_per_s : {2e6, 1e9}) {
    const RackOfTwo rack(bytes_per_s);
    SimNetwork network(&rack.sim.pipeline, 0);
    for (const int stage : {0, 1, 2}) {
      EXPECT_FALSE(network.SharesItsWay(stage));
      EXPECT_EQ(network.Send(stage, 0, 1, 0).arrives_ns, 4'000'000);
      EXPECT_EQ(network.Send(stage, 1, 1, 1'000'000).arrives_ns, 8'000'000);
    }
  }
}

TEST(SimNetwork, AnUplinkOfOneStageIsALinkOfItsBandwidth) {
  TestCluster cluster({0, 1});
  cluster.sim.pipeline.stages[0].link = {.latency_s = 0.001, .bytes_per_s = 1e6};
  ShareUplinks({{5e5, {0}}, {8e5, {1}}}, &cluster.sim.pipeline);
  SimNetwork network(&cluster.sim.pipeline, 0);
  EXPECT_FALSE(network.SharesItsWay(0));
  EXPECT_EQ(network.Send(0, 0, 1, 0).arrives_ns, 9'000'000);
  EXPECT_EQ(network.Send(0, 1, 1, 0).arrives_ns, 17'000'000);
}

TEST(SimPipeline, AStagesFramesGoOneBehindTheOtherOverAnUplinkAndShareItWithThoseOfOthers) {
  const RackOfTwo rack(1e6);
  const auto results = ResultsOf(rack.sim, {1, 1, 1});
  const auto received_us = [&](size_t stage) {
    std::vector<int64_t> times;
    for (const auto& result : results) times.push_back(result.second.times[stage].received_us);
    return times;
  };
  // Stage 0's frames are ready at 1, 2 and 3 ms. The first two are alone, 1 to 5 and 5 to 9 ms; the third is half
  // through at 11 ms, when stage 2 sends its first, and takes 4 ms more. That one has the rest alone, 15 to 17 ms, and
  // those behind it meet nobody.
  EXPECT_THAT(received_us(1), ElementsAre(5000, 9000, 15000));
  EXPECT_THAT(received_us(2), ElementsAre(10000, 14000, 20000));
  EXPECT_THAT(received_us(3), ElementsAre(17000, 21000, 25000));
}

TEST(SimPipeline, AFrameThatWaitsForItsOwnLinkLeavesTheUplinkToOthers) {
  // Hosts 0 and 1 are behind a wide uplink, 2 and 3 are not: stage 1's frames leave through it. Its link takes 4 ms a
  // frame, its computing 1 ms, so that frames queue there; stage 3 hears of none of that from stage 2.
  TestCluster cluster({0, 2, 1, 3});
  for (PipelineStage& stage : cluster.sim.pipeline.stages) stage.link = {.latency_s = 0, .bytes_per_s = 1e9};
  cluster.sim.pipeline.stages[0].link.bytes_per_s = 1e6;
  ShareUplinks({{1e8, {0, 1}}}, &cluster.sim.pipeline);
  const auto results = ResultsOf(cluster.sim, {1, 1, 1, 1, 1, 1});
  // Each frame is on stage 0's link for 4 ms, and nobody takes that from it; then 1 ms on each of three stages, 0.08 ms
  // on uplinks. The last frame of stage 0 leaves at 1 + 6 * 4 ms.
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(results[i].first, 1 + 4 * (static_cast<double>(i) + 1) + 3 + 0.08, 1e-2) << i;
  }
}

TEST(SimNetwork, JitterIsDrawnBySeedAndNeverLetsAFrameOvertake) {
  TestCluster cluster({0, 1});
  cluster.sim.pipeline.stages[0].link = {.latency_s = 0.001, .bytes_per_s = 1e9, .jitter_s = 0.002};
  SimNetwork one(&cluster.sim.pipeline, 5), same(&cluster.sim.pipeline, 5), other(&cluster.sim.pipeline, 6);
  int64_t last_ns = 0, differ = 0;
  double extra_s = 0;
  for (uint64_t frame = 0; frame < 1000; ++frame) {
    const auto ready_ns = static_cast<int64_t>(frame) * 100'000'000;
    const SimNetwork::Delivery delivery = one.Send(0, frame, 1, ready_ns);
    EXPECT_EQ(same.Send(0, frame, 1, ready_ns).arrives_ns, delivery.arrives_ns);
    differ += other.Send(0, frame, 1, ready_ns).arrives_ns != delivery.arrives_ns ? 1 : 0;
    EXPECT_GE(delivery.arrives_ns, last_ns);
    last_ns = delivery.arrives_ns;
    extra_s += SecondsOf(delivery.arrives_ns - delivery.sent_ns) - 0.001;
  }
  EXPECT_GT(differ, 990);
  EXPECT_NEAR(extra_s / 1000, 0.002, 0.0003);
  SimNetwork burst(&cluster.sim.pipeline, 5);
  last_ns = 0;
  for (uint64_t frame = 0; frame < 1000; ++frame) {
    const int64_t arrives_ns = burst.Send(0, frame, 1, 0).arrives_ns;
    EXPECT_GE(arrives_ns, last_ns);
    last_ns = arrives_ns;
  }
}

TEST(SimPipeline, SaysThatAStageIsLostOnceThatIsFoundOut) {
  TestCluster cluster({0});
  VirtualClock clock;
  SimPipeline pipeline(&cluster.sim, &clock, 0, /*fails_at_ns=*/1'500'000, /*detect_ns=*/1'000'000'000);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(pipeline.Submit(Decode(i, 1)).ok());
  EXPECT_EQ(pipeline.NextNs(kNeverNs), 1'000'000);
  clock.AdvanceTo(1'000'000);
  EXPECT_TRUE((*pipeline.Poll()).has_value());
  EXPECT_EQ(pipeline.NextNs(5'000'000), std::nullopt);  // the second step never ends
  EXPECT_EQ(pipeline.NextNs(kNeverNs), 1'001'500'000);
  clock.AdvanceTo(1'001'500'000);
  EXPECT_TRUE(absl::IsUnavailable(pipeline.Poll().status()));
}

TEST(LoadOf, CountsTheRowsOfAMix) {
  MicroBatch batch = Decode(0, 2);
  batch.slices.push_back({.sequence = 9, .start = 100, .count = 50, .tokens = {}});
  const StepLoad load = LoadOf(batch);
  EXPECT_EQ(load.rows, 52);
  EXPECT_EQ(load.sequences, 3);
  EXPECT_EQ(load.kv_tokens, 2 * 10 + 150);
  EXPECT_EQ(load.positions, 2 * 10 + 50 * 100 + 50 * 51 / 2);
  EXPECT_EQ(load.head_rows, 2);
  batch.slices[2].targets.assign(50, kNoToken);
  batch.slices[2].targets[7] = 3;
  EXPECT_EQ(LoadOf(batch).head_rows, 3);
}

TEST(LoadOf, CountsWhatEachSliceOfAMixSeesThroughAWindow) {
  MicroBatch batch = Decode(0, 2);
  batch.slices.push_back({.sequence = 9, .start = 100, .count = 50, .tokens = {}});
  const StepLoad load = LoadOf(batch, 8);
  EXPECT_EQ(load.kv_tokens, 2 * 10 + 150);
  EXPECT_EQ(load.window_positions, 2 * 8 + 50 * 8);
  EXPECT_EQ(load.window_kv_tokens, 2 * 8 + 8 + 49);
}

TEST(StageSeconds, LayersOfExpertsCostByTheRows) {
  TestCluster cluster({0}, {3});
  cluster.parts.layers[1].expert_bytes = 1e6;
  cluster.parts.layers[1].expert_share = 0.25;
  EXPECT_DOUBLE_EQ(StageSeconds(cluster.sim.pipeline, 0, StepLoad::Decode(1, 1), 1), 0.002 + 0.00025);
  EXPECT_DOUBLE_EQ(StageSeconds(cluster.sim.pipeline, 0, StepLoad::Decode(2, 1), 1), 0.002 + 0.0004375);
}

TEST(StageSeconds, IsTheLayersCostWhicheverAreAlike) {
  TestCluster cluster({0, 1}, {3, 4});
  cluster.parts.layers[1].bytes_kept = 5e6;
  EXPECT_DOUBLE_EQ(StageSeconds(cluster.sim.pipeline, 0, StepLoad::Decode(1, 1), 1), 0.007);
  EXPECT_DOUBLE_EQ(StageSeconds(cluster.sim.pipeline, 1, StepLoad::Decode(1, 1), 1), 0.004);
  EXPECT_DOUBLE_EQ(StageSeconds(cluster.sim.pipeline, 1, StepLoad::Decode(1, 1), 2), 0.008);
  EXPECT_EQ(StageSeconds(cluster.sim.pipeline, 0, StepLoad{}, 1), 0);
}

}  // namespace
}  // namespace stagecoach
