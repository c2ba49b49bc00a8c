// How many blocks the pools of groups with and without windows get.

#include "coordinator/plan/pool_sizes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/job_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

pb::ConfigureJob WindowJob() {
  pb::ConfigureJob job;
  SetJobSettings({.policy = Policy::kInterleaved, .prefix_caching = false}, &job);
  return job;
}

pb::Hello WindowStage(uint64_t available_bytes) {
  pb::Hello hello;
  hello.set_role(pb::Hello::ROLE_STAGE);
  hello.set_host("node");
  hello.set_allowed_cores(4);
  hello.set_available_memory_bytes(available_bytes);
  hello.add_isas(pb::INSTRUCTION_SET_AVX2);
  return hello;
}

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
  const PoolSizes pools(WindowJob(), WindowedModel()->hyper);
  EXPECT_THAT(pools.Blocks(100), ElementsAre(100, 100));
  EXPECT_THAT(pools.Blocks(1000), ElementsAre(1000, kWindowBlocks));
  pb::ConfigureJob job = WindowJob();
  job.set_prefix_caching(true);
  EXPECT_THAT(PoolSizes(job, WindowedModel()->hyper).Blocks(1000), ElementsAre(1000, kWindowBlocks + 8 * 4 * 5))
      << "and four windows more of each sequence";
  EXPECT_THAT(PoolSizes(job, Model()->hyper).Blocks(1000), ElementsAre(1000));
}

TEST(PoolSizes, WhatFitsIsTheMostWhoseBytesDo) {
  const PoolSizes pools(WindowJob(), WindowedModel()->hyper);
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
    const std::vector<pb::Hello> hosts = {WindowStage(4 * kGiB)};
    const auto plain = PlanJob(WindowJob(), hosts, *Model(), {.run_id = 1, .epoch = 1});
    const auto plan = PlanJob(WindowJob(), hosts, *WindowedModel(windowed), {.run_id = 1, .epoch = 1});
    ASSERT_TRUE(plain.ok() && plan.ok()) << plain.status() << plan.status();
    EXPECT_THAT(plain->group_windows, IsEmpty());
    EXPECT_THAT(plain->stages[0].group_windows(), IsEmpty());
    EXPECT_EQ(plan->full_group(), static_cast<size_t>(1 - windowed));
    const int32_t full = plan->group_blocks[plan->full_group()];
    const auto group = static_cast<size_t>(windowed);
    EXPECT_EQ(plan->group_blocks[group], kWindowBlocks);
    EXPECT_EQ(plan->group_windows[group], 128);
    EXPECT_THAT(plan->stages[0].group_blocks(), ::testing::ElementsAreArray(plan->group_blocks));
    EXPECT_THAT(plan->stages[0].group_windows(), ::testing::ElementsAreArray(plan->group_windows));
    // 28 layers with so many blocks, or 14 with twice as many without what the windows have.
    EXPECT_NEAR(full + kWindowBlocks, 2 * plain->group_blocks[0], 16);
    EXPECT_EQ(plan->context, std::min<int64_t>(40960, int64_t{full} * 32));
  }
}

TEST(PoolSizes, GivenBytesAreFilledWithBothGroups) {
  pb::ConfigureJob job = WindowJob();
  const uint64_t block = uint64_t{14} * 4096 * 32;  // of each group
  job.set_kv_cache_bytes(block * (1000 + kWindowBlocks));
  auto plan = PlanJob(job, {WindowStage(64 * kGiB)}, *WindowedModel(), {.run_id = 1, .epoch = 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->group_blocks, ElementsAre(1000, kWindowBlocks));
  job.set_kv_cache_bytes(2 * block - 1);
  plan = PlanJob(job, {WindowStage(64 * kGiB)}, *WindowedModel(), {.run_id = 1, .epoch = 1});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << "not one of each";
}

// The first of 28 stages has a windowed layer alone, the second one of the others.
TEST(PoolSizes, AStageWithoutLayersOfAGroupBoundsNothingOfIt) {
  std::vector<pb::Hello> hosts(28, WindowStage(16 * kGiB));
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].set_host(absl::StrCat("node", i));
  const auto plan = PlanJob(WindowJob(), hosts, *WindowedModel(), {.run_id = 1, .epoch = 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->stages, SizeIs(28));
  EXPECT_THAT(plan->group_blocks, ElementsAre(8 * 40960 / 32, kWindowBlocks));
}

TEST(PoolSizes, ARelaunchFindsRoomForTheTokensThatWereAccepted) {
  pb::ConfigureJob job = WindowJob();
  const std::vector<pb::Hello> hosts = {WindowStage(2 * kGiB)};
  const auto before = PlanJob(job, hosts, *WindowedModel(), {.run_id = 1, .epoch = 1});
  ASSERT_TRUE(before.ok());
  job.set_min_kv_tokens(before->context * 5 / 4);
  const auto after = PlanJob(job, hosts, *WindowedModel(), {.run_id = 1, .epoch = 1});
  ASSERT_LT(before->context, 40960 * 4 / 5);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GE(int64_t{after->group_blocks[0]} * 32, before->context * 5 / 4);
}

}  // namespace
}  // namespace stagecoach
