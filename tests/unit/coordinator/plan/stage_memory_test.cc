#include "coordinator/plan/stage_memory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Layers [begin, end) of Model(); the stages at its ends own them.
pb::StageAssignment Stage(const ModelDescription& model, int64_t begin, int64_t end) {
  pb::StageAssignment stage;
  stage.set_stages(2);
  stage.set_first_layer(begin);
  stage.set_last_layer(end);
  stage.set_owns_embedding(begin == 0);
  stage.set_owns_head(end == model.hyper.layer_count());
  stage.set_block_tokens(32);
  stage.set_kv_type(pb::KV_TYPE_F16);
  stage.set_wire_type(pb::WIRE_TYPE_F32);
  stage.set_isa(pb::INSTRUCTION_SET_AVX2);
  stage.set_threads(2);
  stage.set_context(4096);
  stage.set_max_rows(512);
  stage.set_max_slices(8);
  stage.set_in_flight(2);
  stage.set_max_open_tokens(16384);
  return stage;
}

TEST(StageMemory, CountsEachPartByTheFunctionThatTheStageUses) {
  const auto model = Model("qwen3-0.6b/q8_0");
  const pb::StageAssignment stage = Stage(*model, 19, 28);
  const auto memory = StageMemoryOf(*model, stage, {100}).value();
  EXPECT_EQ(memory.weights, StageWeightMemory(*model, 19, 28, false, true));
  EXPECT_EQ(memory.kv, uint64_t{100} * 32 * 4096 * 9);  // 8 heads of 128, K and V, 2 bytes: 4096 a token and layer
  const StepLimits limits = {.max_rows = 512, .max_slices = 8, .context = 4096, .threads = 2};
  EXPECT_EQ(memory.scratch, ScratchSizesOf(*model, 19, 28, true, limits).bytes());
  pb::StageAssignment with_pool = stage;
  with_pool.add_group_blocks(100);
  EXPECT_EQ(memory.frames, LimitsOf(with_pool, 1024, 151936).StageFrameBytes(true, 2));
  EXPECT_EQ(memory.total(), memory.weights + memory.kv + memory.scratch + memory.frames);
}

TEST(StageMemory, AStageWithBothEndsOfATiedModelHoldsTheMatrixOnce) {
  const auto model = Model("qwen3-0.6b/q8_0");
  const uint64_t whole = StageMemoryOf(*model, Stage(*model, 0, 28), {1})->weights;
  const uint64_t halves = StageMemoryOf(*model, Stage(*model, 0, 14), {1})->weights +
                          StageMemoryOf(*model, Stage(*model, 14, 28), {1})->weights;
  EXPECT_EQ(halves - whole, uint64_t{151936} * 1024 / 32 * 34);  // Q8_0: 34 bytes for 32 weights
}

TEST(StageMemory, AKvTypeOfHalfTheBytesTakesHalfThePool) {
  const auto model = Model("qwen3-0.6b/q8_0");
  pb::StageAssignment stage = Stage(*model, 0, 14);
  const std::vector<uint64_t> half = *KvBlockBytes(*model, stage);
  stage.set_kv_type(pb::KV_TYPE_F32);
  EXPECT_THAT(*KvBlockBytes(*model, stage), ElementsAre(2 * half[0]));
}

TEST(StageMemory, RefusesChoicesThatAreNone) {
  const auto model = Model("tiny/q8_0");
  pb::StageAssignment stage = Stage(*model, 0, 3);
  stage.set_kv_type(pb::KV_TYPE_UNSPECIFIED);
  EXPECT_EQ(StageMemoryOf(*model, stage, {1}).status().code(), absl::StatusCode::kInvalidArgument);
  stage = Stage(*model, 0, 3);
  stage.set_isa(pb::INSTRUCTION_SET_UNSPECIFIED);
  EXPECT_EQ(StageMemoryOf(*model, stage, {1}).status().code(), absl::StatusCode::kInvalidArgument);
}

// --- pools of groups with and without windows ------------------------------------------------------------------------

// Every second of the 28 layers, from the first on, sees 128 positions, and is of a group of its own: that of number
// `windowed`.
std::shared_ptr<const ModelDescription> WindowedModel(int32_t windowed = 1) {
  auto model = std::make_shared<ModelDescription>(*Model());
  for (size_t i = 0; i < model->hyper.layers.size(); ++i) {
    LayerSpec& layer = model->hyper.layers[i];
    layer.block_group = i % 2 == 0 ? windowed : 1 - windowed;
    if (i % 2 > 0) continue;
    layer.attention.kind = AttentionKind::kWindowed;
    layer.attention.window = 128;
  }
  return model;
}

// Of 8 sequences: a window of 128 with a chunk of 512 is 639 positions, in up to 21 blocks.
constexpr int32_t kWindowBlocks = 8 * 21;

TEST(PoolSizes, AWindowBoundsWhatItsGroupCanUse) {
  const PoolSizes pools(Job(), WindowedModel()->hyper);
  EXPECT_THAT(pools.Blocks(100), ElementsAre(100, 100));
  EXPECT_THAT(pools.Blocks(1000), ElementsAre(1000, kWindowBlocks));
  pb::ConfigureJob job = Job();
  job.set_prefix_caching(true);
  EXPECT_THAT(PoolSizes(job, WindowedModel()->hyper).Blocks(1000), ElementsAre(1000, kWindowBlocks + 8 * 4 * 5))
      << "and four windows more of each sequence";
  EXPECT_THAT(PoolSizes(job, Model()->hyper).Blocks(1000), ElementsAre(1000));
}

TEST(PoolSizes, WhatFitsIsTheMostWhoseBytesDo) {
  const PoolSizes pools(Job(), WindowedModel()->hyper);
  const std::vector<uint64_t> bytes = {10, 7};
  EXPECT_EQ(pools.Bytes(100, bytes), 1700u);
  EXPECT_EQ(pools.Bytes(1000, bytes), 10000u + 7 * kWindowBlocks);
  for (const uint64_t blocks : {uint64_t{1}, uint64_t{167}, uint64_t{168}, uint64_t{169}, uint64_t{54321}}) {
    EXPECT_EQ(pools.Fitting(pools.Bytes(blocks, bytes), bytes), blocks);
    EXPECT_EQ(pools.Fitting(pools.Bytes(blocks, bytes) - 1, bytes), blocks - 1);
  }
  EXPECT_EQ(pools.Fitting(16, bytes), 0u);
  EXPECT_EQ(pools.Fitting(1 << 20, {0, 7}), uint64_t{1} << 30) << "as many as a pool can have";
  EXPECT_EQ(pools.Fitting(~uint64_t{0}, {uint64_t{1} << 60, uint64_t{1} << 60}), 1u) << "no sum overflows";
}

TEST(PoolSizes, WhereEveryLayerHasAWindowTheFirstGroupKeepsItsBlocks) {
  ModelDescription model = *WindowedModel();
  EXPECT_THAT(ReleaseWindows(model.hyper), ElementsAre(0, 128));
  EXPECT_THAT(ReleaseWindows(WindowedModel(0)->hyper), ElementsAre(128, 0));
  EXPECT_THAT(ReleaseWindows(Model()->hyper), IsEmpty());
  for (LayerSpec& layer : model.hyper.layers) {
    layer.attention.kind = AttentionKind::kWindowed;
    layer.attention.window = 128;
  }
  EXPECT_THAT(ReleaseWindows(model.hyper), ElementsAre(0, 128));
  for (LayerSpec& layer : model.hyper.layers) layer.block_group = 0;
  EXPECT_THAT(ReleaseWindows(model.hyper), IsEmpty());
}

TEST(PoolSizes, WhatAWindowSparesIsBlocksOfTheOtherLayers) {
  for (const int32_t windowed : {0, 1}) {
    const std::vector<pb::Hello> hosts = {StageOn("node", 4 * kGiB)};
    const JobPlan plain = Planned(Job(), hosts), plan = Planned(Job(), hosts, *WindowedModel(windowed));
    EXPECT_THAT(plain.group_windows, IsEmpty());
    EXPECT_THAT(plain.stages[0].group_windows(), IsEmpty());
    EXPECT_EQ(plan.full_group(), static_cast<size_t>(1 - windowed));
    const int32_t full = plan.group_blocks[plan.full_group()];
    const auto group = static_cast<size_t>(windowed);
    EXPECT_EQ(plan.group_blocks[group], kWindowBlocks);
    EXPECT_EQ(plan.group_windows[group], 128);
    EXPECT_THAT(plan.stages[0].group_blocks(), ::testing::ElementsAreArray(plan.group_blocks));
    EXPECT_THAT(plan.stages[0].group_windows(), ::testing::ElementsAreArray(plan.group_windows));
    // 28 layers with so many blocks, or 14 with twice as many without what the windows have.
    EXPECT_NEAR(full + kWindowBlocks, 2 * plain.group_blocks[0], 16);
    EXPECT_EQ(plan.context, std::min<int64_t>(40960, int64_t{full} * 32));
  }
}

TEST(PoolSizes, GivenBytesAreFilledWithBothGroups) {
  pb::ConfigureJob job = Job();
  const uint64_t block = uint64_t{14} * 4096 * 32;  // of each group
  job.set_kv_cache_bytes(block * (1000 + kWindowBlocks));
  const std::vector<pb::Hello> hosts = {StageOn("node", 64 * kGiB)};
  EXPECT_THAT(Planned(job, hosts, *WindowedModel()).group_blocks, ElementsAre(1000, kWindowBlocks));
  job.set_kv_cache_bytes(2 * block - 1);  // not one of each
  Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *WindowedModel());
}

// The first of 28 stages has a windowed layer alone, the second one of the others.
TEST(PoolSizes, AStageWithoutLayersOfAGroupBoundsNothingOfIt) {
  std::vector<pb::Hello> hosts(28, StageOn("node", 16 * kGiB));
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].set_host(absl::StrCat("node", i));
  const JobPlan plan = Planned(Job(), hosts, *WindowedModel());
  EXPECT_THAT(plan.stages, SizeIs(28));
  EXPECT_THAT(plan.group_blocks, ElementsAre(8 * 40960 / 32, kWindowBlocks));
}

TEST(PoolSizes, ARelaunchFindsRoomForTheTokensThatWereAccepted) {
  pb::ConfigureJob job = Job();
  const std::vector<pb::Hello> hosts = {StageOn("node", 2 * kGiB)};
  const int64_t before = Planned(job, hosts, *WindowedModel()).context;
  ASSERT_LT(before, 40960 * 4 / 5);
  job.set_min_kv_tokens(before * 5 / 4);
  EXPECT_GE(int64_t{Planned(job, hosts, *WindowedModel()).group_blocks[0]} * 32, before * 5 / 4);
}

}  // namespace
}  // namespace stagecoach
