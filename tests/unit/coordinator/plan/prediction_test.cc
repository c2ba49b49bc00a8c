#include "coordinator/plan/prediction.h"

#include <vector>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using ::testing::DoubleNear;

// 1 GB/s and 2 GOP/s of int8, 1 of f32, for each of two stages' threads.
HostFacts Host(int cores = 1) {
  HostFacts host = {.name = "h", .cores = cores};
  host.speeds = {{.stages = 1,
                  .threads = cores,
                  .read_gbps = 1.0,
                  .int8_gops = 2.0 * cores,
                  .bf16_gops = 0,
                  .f32_gops = 1.0 * cores}};
  return host;
}

// Layers of 1 MB and 2 million operations a row: 1 ms to read, 1 ms of computing a row. No attention.
ModelParts Parts(int layers) {
  ModelParts parts;
  parts.hidden = 1000;
  parts.layers.assign(static_cast<size_t>(layers), {.bytes_kept = 1e6, .int8_ops = 2e6});
  return parts;
}

TEST(CostModel, AStepTakesTheLongerOfReadingAndComputing) {
  const StageSpeed speed = *SpeedOfStage(Host(), 1, 1);
  const PartWork layer = {.bytes_kept = 4e6, .int8_ops = 2e6};
  EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(1, 0), speed), 0.004);
  EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(4, 0), speed), 0.004);  // b*
  EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(8, 0), speed), 0.008);
}

TEST(CostModel, AttentionReadsTheContextOnceAndComputesItForEveryRow) {
  const StageSpeed speed = *SpeedOfStage(Host(), 1, 1);
  const PartWork layer = {.attention_ops = 100, .kv_token_bytes = 1000};
  // Decode of 2 sequences at 500 positions: 1 MB to read, 100,000 operations.
  EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(2, 500), speed), 0.001);
  // 100 rows behind 400 others: 45,050 positions, of 500 tokens.
  const StepLoad chunk = StepLoad::Chunk(100, 400, false);
  EXPECT_DOUBLE_EQ(chunk.positions, 45050);
  EXPECT_DOUBLE_EQ(chunk.kv_tokens, 500);
  EXPECT_DOUBLE_EQ(chunk.head_rows, 0);
  EXPECT_DOUBLE_EQ(LayerSeconds(layer, chunk, speed), 45050 * 100 / 1e9);
}

TEST(CostModel, ALayerWithAWindowReadsAndComputesNothingOutsideOfIt) {
  const StageSpeed speed = *SpeedOfStage(Host(), 1, 1);
  const PartWork full = {.attention_ops = 1, .kv_token_bytes = 1000};
  const PartWork windowed = {.attention_ops = 1, .kv_token_bytes = 1000, .window = 128};
  const StepLoad decode = StepLoad::Decode(2, 500, 128);
  EXPECT_DOUBLE_EQ(LayerSeconds(full, decode, speed), 2 * 500e-6);
  EXPECT_DOUBLE_EQ(LayerSeconds(windowed, decode, speed), 2 * 128e-6);
  EXPECT_DOUBLE_EQ(LayerSeconds(windowed, StepLoad::Decode(2, 100, 128), speed), 2 * 100e-6);
  // 100 rows behind 50 others: the first 78 see all before them. 150 positions lie before the last one, all of them
  // within some row's window.
  const StepLoad chunk = StepLoad::Chunk(100, 50, false, 128);
  EXPECT_DOUBLE_EQ(chunk.positions, 100 * 50 + 5050);
  EXPECT_DOUBLE_EQ(chunk.PositionsIn(windowed), 78 * 50 + 78 * 79 / 2 + 22 * 128);
  EXPECT_DOUBLE_EQ(chunk.KvTokensIn(windowed), 150);
  const StepLoad late = StepLoad::Chunk(100, 5000, false, 128);
  EXPECT_DOUBLE_EQ(late.PositionsIn(windowed), 100 * 128);
  EXPECT_DOUBLE_EQ(late.KvTokensIn(windowed), 128 + 99);
  EXPECT_DOUBLE_EQ(late.KvTokensIn(full), 5100);
}

TEST(CostModel, AStateIsReadAndWrittenOnceASequenceAndComputedForEveryRow) {
  const StageSpeed speed = *SpeedOfStage(Host(), 1, 1);  // 1 GB/s, 1e9 operations in floats
  const PartWork layer = {.state_bytes = 1e6, .state_ops = 5e5};
  for (const double context : {1.0, 5000.0}) {
    EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(1, context), speed), 0.002);
    EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Decode(8, context), speed), 0.016);
    EXPECT_DOUBLE_EQ(LayerSeconds(layer, StepLoad::Chunk(64, context, false), speed), 64 * 5e5 / 1e9);
  }
  // The measured layer has attention: what a state takes is added to what was measured of the matrices.
  HostFacts host = Host();
  host.steps = {{.rows = 1, .sequences = 1, .context = 1, .threads = 1, .layer_us = 1500},
                {.rows = 8, .sequences = 8, .context = 1, .threads = 1, .layer_us = 8700}};
  ModelParts parts = Parts(2);
  const PartWork measured = parts.layers[0];
  parts.layers[1].state_bytes = 1e6;
  parts.layers[1].state_ops = 5e5;
  const StageCosts costs(&host, 1, &parts, &measured);
  EXPECT_NEAR(costs.Layer(0, StepLoad::Decode(8, 1), 1), 0.0087, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Decode(8, 1), 1), 0.0087 + 0.016, 1e-12);
}

TEST(CostModel, StagesThatWorkAtTheSameMomentShareTheHost) {
  const HostFacts host = Host(4);
  const StageSpeed alone = *SpeedOfStage(host, 4, 1), shared = *SpeedOfStage(host, 2, 2);
  EXPECT_DOUBLE_EQ(shared.read_bytes, alone.read_bytes / 2);
  EXPECT_DOUBLE_EQ(shared.int8_ops, alone.int8_ops / 2);
  // Threads beyond the cores add nothing.
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 8, 1)->int8_ops, alone.int8_ops);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 4, 2)->int8_ops, shared.int8_ops);
  EXPECT_DOUBLE_EQ(shared.barriers_s, kBarriersPerLayer * kBarrierSeconds);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 1)->barriers_s, 0);
  EXPECT_FALSE(SpeedOfStage(HostFacts{}, 1, 1).has_value());
}

TEST(CostModel, FewThreadsDoNotReadWhatAllCoresDo) {
  HostFacts host = Host(16);
  host.speeds[0].read_gbps = 80;
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 16, 1)->read_bytes, 80e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 8, 2)->read_bytes, 40e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 1)->read_bytes, 10e9) << "what is assumed of a core";
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 2, 2)->read_bytes, 20e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 12, 1)->read_bytes, 80e9) << "it takes eight cores";
  host.speeds[0].read_gbps = 320;
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 1)->read_bytes, 20e9) << "its part";
}

TEST(CostModel, WhatWasMeasuredForSoManyStagesIsTakenForSoMany) {
  HostFacts host = Host(2);
  host.speeds = {{.stages = 1, .threads = 1, .read_gbps = 3, .int8_gops = 2, .f32_gops = 1},
                 {.stages = 1, .threads = 2, .read_gbps = 4, .int8_gops = 4, .f32_gops = 2},
                 {.stages = 2, .threads = 1, .read_gbps = 5, .int8_gops = 3, .f32_gops = 2}};
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 1)->read_bytes, 3e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 2, 1)->read_bytes, 4e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 2)->read_bytes, 2.5e9);
  EXPECT_DOUBLE_EQ(SpeedOfStage(host, 1, 2)->int8_ops, 1.5e9);
}

TEST(CostModel, MeasuredStepsReplaceTheRooflineWithLinesBetweenThem) {
  HostFacts host = Host();
  host.steps = {{.rows = 1, .sequences = 1, .context = 1, .threads = 1, .layer_us = 1500},
                {.rows = 8, .sequences = 8, .context = 1, .threads = 1, .layer_us = 8700},
                {.rows = 64, .sequences = 1, .context = 64, .threads = 1, .layer_us = 70000}};
  const ModelParts parts = Parts(2);
  const StageCosts costs(&host, 1, &parts, &parts.layers[0]);
  EXPECT_TRUE(costs.measured());
  EXPECT_NEAR(costs.Layer(0, StepLoad::Decode(1, 1), 1), 0.0015, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Decode(8, 1), 1), 0.0087, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Decode(4.5, 1), 1), (0.0015 + 0.0087) / 2, 1e-12);
  // Matrices do not know whether their rows are of one sequence.
  EXPECT_NEAR(costs.Layer(1, StepLoad::Decode(36, 1), 1), (0.0087 + 0.07) / 2, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Chunk(8, 0, false), 1), 0.0087, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Chunk(64, 0, false), 1), 0.07, 1e-12);
  EXPECT_NEAR(costs.Layer(1, StepLoad::Chunk(128, 0, false), 1), 0.14, 1e-12);  // beyond: as the roofline goes on
  // Beside another stage the host gives half of its bandwidth and of its only core: twice the roofline, twice the time.
  EXPECT_NEAR(costs.Layer(0, StepLoad::Decode(1, 1), 2), 0.003, 1e-12);
  EXPECT_FALSE(StageCosts(&host, 1, &parts, nullptr).measured());
  EXPECT_NEAR(StageCosts(&host, 1, &parts, nullptr).Layer(0, StepLoad::Decode(1, 1), 1), 0.001, 1e-12);
}

TEST(CostModel, WhatContextCostsIsTheDifferenceOfStepsOfAsManyRows) {
  HostFacts host = Host();
  host.steps = {{.rows = 8, .sequences = 8, .context = 50, .threads = 1, .layer_us = 8400},
                {.rows = 8, .sequences = 8, .context = 550, .threads = 1, .layer_us = 12400},
                {.rows = 64, .sequences = 1, .context = 64, .threads = 1, .layer_us = 70000},
                {.rows = 64, .sequences = 1, .context = 564, .threads = 1, .layer_us = 102000}};
  ModelParts parts = Parts(1);
  parts.layers[0].kv_token_bytes = 100;
  parts.layers[0].attention_ops = 1;
  const StageCosts costs(&host, 1, &parts, &parts.layers[0]);
  // A token of context costs a decode step 4000 us / (8 * 500) = 1 us, so 8 us a position are the matrices' 8 ms.
  EXPECT_NEAR(costs.Layer(0, StepLoad::Decode(8, 300), 1), 0.008 + 8 * 300e-6, 1e-9);
  // 500 tokens of history cost the chunk 500 us to read, and the other 63 rows' positions the rest of 32 ms.
  const StepLoad history = StepLoad::Chunk(64, 250, false), none = StepLoad::Chunk(64, 0, false);
  EXPECT_NEAR(costs.Layer(0, history, 1) - costs.Layer(0, none, 1), 0.016, 1e-9);
  EXPECT_NEAR(costs.Layer(0, none, 1), 0.07, 1e-9);
  // Decode rows beside a chunk add their own tokens and rows.
  StepLoad mix = none;
  const StepLoad decode = StepLoad::Decode(8, 300);
  mix.rows += decode.rows;
  mix.sequences += decode.sequences;
  mix.positions += decode.positions;
  mix.kv_tokens += decode.kv_tokens;
  EXPECT_NEAR(costs.Layer(0, mix, 1), 0.07 * 72 / 64 + 0.0024, 1e-3);
}

TEST(CostModel, AShortChunkCostsNoMoreThanItsRows) {
  HostFacts host = Host();
  host.steps = {{.rows = 64, .sequences = 1, .context = 64, .threads = 1, .layer_us = 64000}};
  const ModelParts parts = Parts(1);
  const StageCosts costs(&host, 1, &parts, &parts.layers[0]);
  EXPECT_NEAR(costs.Layer(0, StepLoad::Chunk(16, 0, false), 1), 0.016, 1e-12);
  EXPECT_NEAR(costs.Layer(0, StepLoad::Chunk(1, 0, false), 1), 0.001, 1e-12);
}

TEST(CostModel, StepsOfAsManyThreadsAreTakenBeforeOthers) {
  HostFacts host = Host(2);
  host.steps = {{.rows = 1, .sequences = 1, .context = 1, .threads = 1, .layer_us = 1500},
                {.rows = 1, .sequences = 1, .context = 1, .threads = 2, .layer_us = 1400}};
  const ModelParts parts = Parts(1);
  EXPECT_NEAR(StageCosts(&host, 2, &parts, &parts.layers[0]).Layer(0, StepLoad::Decode(1, 1), 1), 0.0014, 1e-12);
  EXPECT_NEAR(StageCosts(&host, 1, &parts, &parts.layers[0]).Layer(0, StepLoad::Decode(1, 1), 1), 0.0015, 1e-12);
}

TEST(CostModel, AHeadOfMoreRowsThanMeasuredCostsMoreOnlyWhereItComputes) {
  HostFacts host = Host();
  host.steps = {{.rows = 8, .sequences = 8, .context = 1, .threads = 1, .layer_us = 8000, .head_us = 20000}};
  ModelParts parts = Parts(1);
  parts.head = {.bytes_kept = 16e6, .int8_ops = 2e6};  // 16 ms to read, 1 ms a row to compute
  const StageCosts costs(&host, 1, &parts, &parts.layers[0]);
  EXPECT_NEAR(costs.Head(StepLoad::Decode(16, 1), 1), 0.020, 1e-12);
  EXPECT_NEAR(costs.Head(StepLoad::Decode(32, 1), 1), 0.040, 1e-12);
}

TEST(CostModel, WeightsThatAreReadFromACacheAreNotSlowedByOthersThatReadMemory) {
  HostFacts host = Host(2);
  host.speeds = {{.stages = 1, .threads = 1, .read_gbps = 1, .int8_gops = 20, .f32_gops = 1},
                 {.stages = 2, .threads = 1, .read_gbps = 1, .int8_gops = 40, .f32_gops = 2}};
  const ModelParts parts = Parts(1);  // 1 ms to read, 0.1 ms a row
  host.steps = {{.rows = 1, .sequences = 1, .context = 1, .threads = 1, .layer_us = 400}};
  EXPECT_NEAR(StageCosts(&host, 1, &parts, &parts.layers[0]).Layer(0, StepLoad::Decode(1, 1), 2), 0.0004, 1e-12);
  host.steps[0].layer_us = 1100;
  EXPECT_NEAR(StageCosts(&host, 1, &parts, &parts.layers[0]).Layer(0, StepLoad::Decode(1, 1), 2), 0.0022, 1e-12);
}

TEST(CostModel, BetweenMeasuredStepsOfExpertsGoesTheCurveOfWhatIsRead) {
  HostFacts host = Host();
  ModelParts parts;
  parts.layers.assign(2, {.bytes_kept = 1e6, .expert_bytes = 1e6, .expert_share = 1.0 / 16});
  parts.layers[1] = {.bytes_kept = 2e5};  // a dense layer before them
  const auto read_s = [&](double rows) { return parts.layers[0].BytesTouched(rows) / 1e9; };
  for (const int rows : {1, 32}) {  // twice what reading alone takes
    host.steps.push_back({.rows = rows, .sequences = rows, .context = 1, .threads = 1, .layer_us = 2e6 * read_s(rows)});
  }
  const StageCosts costs(&host, 1, &parts, &parts.layers[0]);
  for (const double rows : {1.0, 4.0, 16.0, 32.0, 100.0}) {
    EXPECT_NEAR(costs.Layer(0, StepLoad::Decode(rows, 0), 1), 2 * read_s(rows), 1e-12) << rows;
    EXPECT_NEAR(costs.Layer(1, StepLoad::Decode(rows, 0), 1), 2 * 2e-4, 1e-12) << rows;
  }
}

// `split[s]` layers on stage s, each on a host of its own.
class Pipeline {
 public:
  Pipeline(const std::vector<int>& split, double latency_s, double bytes_per_s) : parts_(Parts(100)) {
    int64_t begin = 0;
    for (size_t s = 0; s < split.size(); ++s) {
      model_.stages.push_back({.costs = &costs_,
                               .layers = {begin, begin + split[s]},
                               .host = static_cast<int>(s),
                               .host_stages = 1,
                               .link = {latency_s, bytes_per_s}});
      begin += split[s];
    }
    model_.to_first_s = latency_s;
    model_.row_bytes = 4000;
  }
  PipelineModel& model() { return model_; }
  ModelParts& parts() { return parts_; }

 private:
  HostFacts host_ = Host();
  ModelParts parts_;
  StageCosts costs_{&host_, 1, &parts_, nullptr};
  PipelineModel model_;
};

constexpr double kFast = 1e18;

TEST(PredictDecode, AsManyEvenGroupsAsStagesFillThePipeline) {
  Pipeline pipeline({4, 4}, 0, kFast);
  const DecodePrediction full = PredictDecode(pipeline.model(), 2, 0, 2);  // a row a group: 4 ms a stage
  EXPECT_NEAR(full.itl_s, 0.008, 1e-9);
  EXPECT_NEAR(full.tokens_per_s, 250, 1e-6);
  EXPECT_NEAR(full.bubble, 0, 1e-9);
  EXPECT_THAT(full.stage_s, ElementsAre(DoubleNear(0.004, 1e-12), DoubleNear(0.004, 1e-12)));
}

TEST(PredictDecode, NoPartOfTheBubbleIsLessThanNothing) {
  for (int layers = 1; layers <= 14; ++layers) {
    Pipeline pipeline({layers, layers, layers}, 0, kFast);
    for (PartWork& layer : pipeline.parts().layers) layer.bytes_kept = 1e6 * 0.1 * layers;
    for (const int groups : {1, 2, 3, 5}) {
      const DecodePrediction plan = PredictDecode(pipeline.model(), 7, 0, groups);
      for (const double part : {plan.bubble_few, plan.bubble_imbalance, plan.bubble_hop, plan.bubble_coordinator}) {
        EXPECT_GE(part, 0) << layers << " layers, " << groups << " groups";
      }
    }
  }
}

// Four stages, 16 sequences, and nothing but reading takes time.
double GainOfFourGroups(const PartWork& layer) {
  Pipeline pipeline({2, 2, 2, 2}, 0, kFast);
  for (PartWork& of : pipeline.parts().layers) of = layer;
  const double one = PredictDecode(pipeline.model(), 16, 0, 1).itl_s;
  return one / PredictDecode(pipeline.model(), 16, 0, 4).itl_s;
}

TEST(PredictDecode, GroupsPayWhereFewRowsReadFewExperts) {
  EXPECT_NEAR(GainOfFourGroups({.bytes_kept = 1e6}), 1, 1e-9);
  EXPECT_NEAR(GainOfFourGroups({.bytes_kept = 1e6, .expert_bytes = 1e6, .expert_share = 8.0 / 128}), 2.8, 0.1);
  EXPECT_NEAR(GainOfFourGroups({.bytes_kept = 1e6, .expert_bytes = 1e6, .expert_share = 8.0 / 384}), 3.5, 0.05);
  // A third of what 16 rows read is not experts'.
  EXPECT_NEAR(GainOfFourGroups({.bytes_kept = 1.3e6, .expert_bytes = 1e6, .expert_share = 8.0 / 128}), 1.8, 0.1);
}

TEST(PredictDecode, FewerGroupsThanStagesLeaveStagesIdle) {
  Pipeline pipeline({2, 2, 2, 2}, 0, kFast);
  const DecodePrediction one = PredictDecode(pipeline.model(), 4, 0, 1);
  EXPECT_NEAR(one.bubble, 1 - 1.0 / 4, 1e-9);  // 1 - M / S
  EXPECT_NEAR(one.bubble_few, one.bubble, 1e-9);
  EXPECT_NEAR(one.bubble_imbalance, 0, 1e-9);
  EXPECT_NEAR(one.bubble_hop, 0, 1e-9);
}

TEST(PredictDecode, GroupsThatAreNotUnderWayWaitForThoseThatAre) {
  Pipeline pipeline({4, 4}, 0.001, kFast);
  // Four groups of a row, one at a time: four rounds.
  const DecodePrediction one = PredictDecode(pipeline.model(), 4, 0, 4, 1);
  EXPECT_NEAR(one.itl_s, 4 * 0.011, 1e-9);
  EXPECT_NEAR(one.bubble_few, 4 * 0.004 / 0.044, 1e-9);
  EXPECT_NEAR(one.bubble_hop, 4 * 0.003 / 0.044, 1e-9);
  EXPECT_NEAR(one.bubble, 1 - 4 * 0.008 / (2 * 0.044), 1e-9);
  EXPECT_NEAR(PredictDecode(pipeline.model(), 4, 0, 4, 2).itl_s, 2 * 0.011, 1e-9);
  EXPECT_NEAR(PredictDecode(pipeline.model(), 4, 0, 4, 4).itl_s, PredictDecode(pipeline.model(), 4, 0, 4).itl_s, 0);
}

TEST(PredictDecode, TheSlowestStageSetsThePace) {
  Pipeline pipeline({6, 2}, 0, kFast);
  const DecodePrediction result = PredictDecode(pipeline.model(), 2, 0, 2);
  EXPECT_EQ(result.limit, (PipelineLimit{PipelineLimit::What::kStage, 0}));
  EXPECT_NEAR(result.itl_s, 0.012, 1e-9);
  EXPECT_NEAR(result.bubble, 1 - 8.0 / 12, 1e-9);  // 2 groups of 8 ms on 2 stages in 12 ms
  EXPECT_NEAR(result.bubble_imbalance, result.bubble, 1e-9);
}

TEST(PredictDecode, HopsAreHiddenByMoreGroupsButNotBySoManyAsStages) {
  Pipeline pipeline({4, 4}, 0.001, kFast);
  const DecodePrediction two = PredictDecode(pipeline.model(), 2, 0, 2);
  EXPECT_NEAR(two.itl_s, 0.008 + 3 * 0.001, 1e-9);  // to the first, to the second, back
  EXPECT_NEAR(two.bubble_hop, 3.0 / 11, 1e-9);
  EXPECT_NEAR(two.bubble, two.bubble_hop, 1e-9);
  const DecodePrediction four = PredictDecode(pipeline.model(), 4, 0, 4);
  EXPECT_NEAR(four.itl_s, 0.016, 1e-9);
  EXPECT_NEAR(four.bubble, 0, 1e-9);
}

TEST(PredictDecode, ASlowLinkIsTheBottleneck) {
  Pipeline pipeline({4, 4}, 0, 4000 / 0.010);  // a row takes 10 ms
  const DecodePrediction result = PredictDecode(pipeline.model(), 4, 0, 4);
  EXPECT_EQ(result.limit, (PipelineLimit{PipelineLimit::What::kLink, 0}));
  EXPECT_NEAR(result.itl_s, 0.040, 1e-9);
  EXPECT_NEAR(result.bubble, 1 - 4 * 8.0 / (2 * 40), 1e-9);
  EXPECT_NEAR(result.bubble_few + result.bubble_imbalance + result.bubble_hop, result.bubble, 1e-12);
}

TEST(PredictDecode, TheCoordinatorsTurnAndWakingUpAreInEveryRound) {
  Pipeline pipeline({4, 4}, 0.001, kFast);
  pipeline.model().turn_s = 0.0005;
  pipeline.model().wake_s = 0.0001;
  const DecodePrediction two = PredictDecode(pipeline.model(), 2, 0, 2);
  // Three hops, each with somebody who wakes up, and one turn.
  EXPECT_NEAR(two.itl_s, 0.008 + 3 * 0.001 + 3 * 0.0001 + 0.0005, 1e-9);
  EXPECT_NEAR(two.bubble_hop, 0.0033 / two.itl_s, 1e-9);
  EXPECT_NEAR(two.bubble_coordinator, 0.0005 / two.itl_s, 1e-9);
  EXPECT_NEAR(two.bubble, two.bubble_hop + two.bubble_coordinator, 1e-9);
  const DecodePrediction four = PredictDecode(pipeline.model(), 4, 0, 4);
  EXPECT_NEAR(four.itl_s, 0.016, 1e-9) << "hidden behind the other groups' steps";
  EXPECT_NEAR(four.bubble, 0, 1e-9);
  pipeline.model().turn_s = 0.010;  // longer than any step: every group waits for its turn
  EXPECT_NEAR(PredictDecode(pipeline.model(), 4, 0, 4).itl_s, 0.040, 1e-9);
}

TEST(PredictSpeculation, ALoneSequenceGainsByEveryStageAsFarAsItsGuessesAreRight) {
  Pipeline pipeline({4, 4, 4, 4}, 0, kFast);  // a row takes 4 ms a stage
  for (const double right : {0.0, 0.5, 0.7, 1.0}) {
    const SpeculationPrediction prediction = PredictSpeculation(pipeline.model(), 0, right, 16);
    EXPECT_EQ(prediction.rows, right > 0 ? 4 : 1) << right;
    EXPECT_NEAR(prediction.tokens_per_s, 1 / (0.016 * (right / 4 + 1 - right)), 1e-6) << right;
  }
  EXPECT_EQ(PredictSpeculation(pipeline.model(), 0, 0.7, 2).rows, 2) << "no more are allowed";
  // Three guesses of 7 ms each take longer than the way through all stages.
  const SpeculationPrediction slow = PredictSpeculation(pipeline.model(), 0, 0.7, 16, 0.007);
  EXPECT_EQ(slow.rows, 2);
  EXPECT_NEAR(slow.tokens_per_s, 1 / (0.016 * (0.7 / 2 + 0.3)), 1e-6);
}

TEST(PredictSpeculation, TheSlowestStageBoundsTheRowsAndHopsCallForOneMore) {
  Pipeline uneven({4, 4, 4, 8}, 0, kFast);
  EXPECT_EQ(PredictSpeculation(uneven.model(), 0, 0.7, 16).rows, 3);
  EXPECT_EQ(PredictSpeculation(uneven.model(), 0, 0.1, 16).rows, 2) << "a third would cost more than it gains";
  Pipeline far({4, 4, 4, 4}, 0.001, kFast);
  EXPECT_EQ(PredictSpeculation(far.model(), 0, 0.7, 16).rows, 5);
  const SpeculationPrediction few = PredictSpeculation(far.model(), 0, 0.7, 16, 0, /*in_flight=*/4);
  EXPECT_EQ(few.rows, 4) << "as many as micro-batches";
  EXPECT_EQ(few.last_useful_stages, PredictSpeculation(far.model(), 0, 0.7, 16).last_useful_stages)
      << "more stages have more micro-batches";
}

TEST(PredictSpeculation, SaysFromHowManyStagesOnAFurtherOneNoLongerPays) {
  Pipeline pipeline({4, 4}, 0, kFast);
  const auto last = [&pipeline](double right) {
    return PredictSpeculation(pipeline.model(), 0, right, 16).last_useful_stages;
  };
  EXPECT_EQ(last(0), 1);
  // By S stages a token takes 0.7 / S + 0.3: of the eighth 3.1 %, of the ninth 2.6 %.
  EXPECT_EQ(last(0.7), 8);
  EXPECT_EQ(last(0.4), 4);
  EXPECT_EQ(last(1), 16) << "so many rows are allowed";
  Pipeline far({4, 4}, 0.002, kFast);
  EXPECT_LT(PredictSpeculation(far.model(), 0, 0.7, 16).last_useful_stages, 8) << "each has its hop";
}

TEST(PredictPrefill, EveryChunkTakesATurnOfTheCoordinator) {
  Pipeline pipeline({1, 1}, 0, kFast);
  pipeline.model().turn_s = 0.002;
  pipeline.model().wake_s = 0.0001;
  // A turn, two steps of 10 ms, three that wake up; the second chunk's turn is over by then.
  EXPECT_NEAR(PredictPrefill(pipeline.model(), 10, 10, 100).ttft_s, 0.002 + 0.020 + 3 * 0.0001, 1e-9);
  EXPECT_NEAR(PredictPrefill(pipeline.model(), 20, 10, 100).ttft_s, 0.002 + 0.030 + 3 * 0.0001, 1e-9);
  EXPECT_NEAR(PredictPrefill(pipeline.model(), 20, 10, 1).tokens_per_s, 20 / (2 * 0.0223), 1e-6);
  pipeline.model().turn_s = 0.015;
  EXPECT_NEAR(PredictPrefill(pipeline.model(), 20, 10, 100).tokens_per_s, 20 / 0.030, 1e-6);
}

TEST(PredictPrefill, ChunksFillAndDrainThePipeline) {
  Pipeline pipeline({1, 1, 1}, 0, kFast);
  // 4 chunks of 10 rows of 1 ms: (4 + 3 - 1) * 10 ms.
  const PrefillPrediction result = PredictPrefill(pipeline.model(), 40, 10, 100);
  EXPECT_NEAR(result.ttft_s, 0.060, 1e-9);
  EXPECT_NEAR(result.bubble, 2.0 / 6, 1e-9);  // (S - 1) / (chunks + S - 1)
  EXPECT_NEAR(result.tokens_per_s, 1000, 1e-6);
  EXPECT_NEAR(PredictPrefill(pipeline.model(), 40, 40, 100).ttft_s, 0.120, 1e-9);
  // One at a time: as if there were no pipeline.
  const PrefillPrediction alone = PredictPrefill(pipeline.model(), 40, 10, 1);
  EXPECT_NEAR(alone.ttft_s, 0.120, 1e-9);
  EXPECT_NEAR(alone.tokens_per_s, 1000.0 / 3, 1e-6);
}

TEST(PredictPrefill, FramesFollowEachOtherOnTheLink) {
  Pipeline pipeline({1, 1}, 0.002, 4000 / 0.003);  // 3 ms a row, 2 ms on the way
  const PrefillPrediction result = PredictPrefill(pipeline.model(), 20, 10, 100);
  // 2 to the first, 10 + 10 there (the first frame of 30 leaves at 12), the second frame ends at 72, 2, 10, 2.
  EXPECT_NEAR(result.ttft_s, 0.072 + 0.002 + 0.010 + 0.002, 1e-9);
  EXPECT_EQ(result.limit, (PipelineLimit{PipelineLimit::What::kLink, 0}));
  EXPECT_NEAR(result.tokens_per_s, 20 / 0.060, 1e-6);
}

// One token each; every one would take minutes of planning.
TEST(PredictPrefill, SamplesOfVeryManyChunksTellWhatAllTake) {
  EXPECT_EQ(ChunksOf(kMostChunks, 1, 0).loads.size(), static_cast<size_t>(kMostChunks));
  EXPECT_EQ(ChunksOf(kMostChunks, 1, 0).each, 1);
  EXPECT_LE(ChunksOf(1 << 24, 1, 0).loads.size(), static_cast<size_t>(kMostChunks));
  Pipeline pipeline({1, 1, 1}, 0, kFast);
  constexpr int kTokens = 120000;
  const PrefillPrediction even = PredictPrefill(pipeline.model(), kTokens, 1, 100);
  EXPECT_NEAR(even.ttft_s, (kTokens + 2) * 0.001, 1e-6);
  EXPECT_NEAR(even.tokens_per_s, 1000, 1e-6);
  EXPECT_NEAR(even.bubble, 2.0 / (kTokens + 2), 1e-7);
  EXPECT_NEAR(PredictPrefill(pipeline.model(), kTokens, 1, 1).ttft_s, kTokens * 0.003, 1e-6);
  EXPECT_NEAR(PredictPrefill(pipeline.model(), kTokens, 1, 2).ttft_s, kTokens / 2 * 0.003 + 0.001, 1e-6);

  for (PartWork& layer : pipeline.parts().layers) layer.attention_ops = 10;  // 10 ns a position
  const PrefillPrediction growing = PredictPrefill(pipeline.model(), kTokens, 1, 100);
  const double first_stage_s = kTokens * 0.001 + 1e-8 * kTokens * (kTokens + 1.0) / 2;
  EXPECT_NEAR(growing.tokens_per_s, kTokens / first_stage_s, 1e-6);
  EXPECT_NEAR(growing.ttft_s, first_stage_s + 2 * (0.001 + 1e-8 * kTokens), 0.001);
}

TEST(PredictBestPrefill, OneStageTakesThePromptWholeAndMoreStagesCutIt) {
  Pipeline one({4}, 0, kFast), four({1, 1, 1, 1}, 0, kFast);
  EXPECT_EQ(PredictBestPrefill(one.model(), 2048, 512).chunk, 512);
  EXPECT_EQ(PredictBestPrefill(four.model(), 2048, 512).chunk, 64);
}

TEST(Prediction, StagesOfOneHostReadAloneWhenOnlyOneIsUnderWay) {
  Pipeline pipeline({4, 4}, 0, kFast);
  for (PipelineStage& stage : pipeline.model().stages) stage.host_stages = 2;
  EXPECT_DOUBLE_EQ(ActiveStages(pipeline.model(), 0, 1), 1);
  EXPECT_DOUBLE_EQ(ActiveStages(pipeline.model(), 0, 2), 2);
  EXPECT_DOUBLE_EQ(ActiveStages(pipeline.model(), 0, 9), 2);
  EXPECT_NEAR(PredictDecode(pipeline.model(), 2, 0, 1).stage_s[0], 0.008, 1e-9);  // two rows, the core to itself
  EXPECT_NEAR(PredictDecode(pipeline.model(), 2, 0, 2).stage_s[0], 0.008, 1e-9);  // one row, half of the core
}

}  // namespace
}  // namespace stagecoach
