// What recurrent states take of a job's memory, and how many slots a job has.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/footprint.h"
#include "coordinator/plan/stage_memory.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

// 32 layers, every fourth with attention: 32 KiB of f16 keys and values a token, so 1 MiB a block, beside which a
// sequence has a state of 50.25 MiB.
constexpr char kName[] = "qwen3.5-4b/q8_0";
constexpr uint64_t kStateBytes = uint64_t{24} * 4 * (3 * 8192 + 32 * 128 * 128);
constexpr int32_t kStateBlocks = 51;

pb::ConfigureJob Caching(pb::ConfigureJob job = Job()) {
  job.set_prefix_caching(true);
  return job;
}

TEST(StateSlotsPlan, AStateIsAsLargeAsTheModelsLayersSay) {
  const auto model = Model(kName);
  EXPECT_EQ(StateBytes(model->hyper, 0, 32), static_cast<int64_t>(kStateBytes));
  EXPECT_EQ(PoolSizes(Job(), model->hyper).state_blocks(), kStateBlocks);
  EXPECT_EQ(PoolSizes(Job(), Model()->hyper).state_blocks(), 0);
}

TEST(StateSlotsPlan, EverySequenceHasASlotAndSnapshotsTakeAsMuchAsTheBlocks) {
  const auto model = Model(kName);
  const PoolSizes plain(Job(), model->hyper), caching(Caching(), model->hyper);
  for (const uint64_t blocks : {uint64_t{1}, uint64_t{1000}}) EXPECT_EQ(plain.Slots(blocks), 8);
  EXPECT_EQ(caching.Slots(1), 8 + 4) << "as many as make the feature work";
  EXPECT_EQ(caching.Slots(1000), 8 + 1000 / kStateBlocks);
  EXPECT_EQ(caching.Slots(~uint64_t{0}), 1 << 20) << "as far as a pool can go";
  EXPECT_EQ(PoolSizes(Caching(), Model()->hyper).Slots(1000), 0);
}

TEST(StateSlotsPlan, AJobsPoolsHoldThemWithinHalfOfWhatIsLeft) {
  const auto model = Model(kName);
  for (const bool caching : {false, true}) {
    const pb::ConfigureJob job = caching ? Caching() : Job();
    const std::vector<pb::Hello> hosts = {StageOn("node", 16 * kGiB)};
    const JobPlan plan = Planned(job, hosts, *model);
    const int32_t blocks = plan.group_blocks[0];
    EXPECT_EQ(plan.state_slots, 8 + (caching ? std::max(4, blocks / kStateBlocks) : 0));
    EXPECT_EQ(plan.state_blocks, kStateBlocks);
    EXPECT_EQ(plan.stages[0].state_slots(), plan.state_slots);
    const StageMemory memory = StageMemoryOf(*model, plan.stages[0], plan.group_blocks, plan.state_slots).value();
    EXPECT_EQ(memory.states, kStateBytes * static_cast<uint64_t>(plan.state_slots));
    EXPECT_EQ(memory.kv, memory.states + kMiB * static_cast<uint64_t>(blocks));
    const uint64_t half = (16 * kGiB - memory.fixed()) / 2;
    EXPECT_LE(memory.kv, half);
    EXPECT_GT(memory.kv, half - kStateBytes - 2 * kMiB) << "it is filled";
    SchedulerOptions options = {{.prefix_caching = caching}, plan};
    EXPECT_EQ(ValidateSchedulerOptions(options), absl::OkStatus());
  }
}

TEST(StateSlotsPlan, EachGuessedRowOfASequenceHasASlotBesideThem) {
  const auto model = Model(kName);
  pb::ConfigureJob job = Job();
  job.set_speculate("auto");
  std::vector<pb::Hello> hosts(12, StageOn("node", 64 * kGiB));
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].set_host(absl::StrCat("node", i));
  const JobPlan plan = Planned(job, hosts, *model);
  EXPECT_EQ(plan.most_guesses, 7) << "of eight rows";
  EXPECT_EQ(plan.state_slots, 8 + 7);
  EXPECT_EQ(Planned(Caching(job), hosts, *model).state_slots,
            PoolSizes(Caching(job), model->hyper, 7).Slots(static_cast<uint64_t>(plan.group_blocks[0])));
  job.set_speculate("suffix");
  job.set_kv_cache_bytes(1);
  EXPECT_THAT(Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *model),
              HasSubstr("of 8 sequences (`max_num_seqs`) and of 7 guessed rows (`speculate`) need"));
}

TEST(StateSlotsPlan, WhereTheseDoNotFitAutoGuessesNothing) {
  const auto model = Model(kName);
  const std::vector<pb::Hello> hosts = {StageOn("a", 64 * kGiB), StageOn("b", 64 * kGiB)};
  pb::ConfigureJob job = Job();
  job.set_speculate("auto");
  for (const int64_t layers : {16, 16}) job.add_layer_split(layers);
  const JobPlan with = Planned(job, hosts, *model);
  EXPECT_EQ(with.most_guesses, 2);
  job.set_kv_cache_bytes(8 * kStateBytes);  // of all layers, of which a stage has half
  EXPECT_EQ(Planned(job, hosts, *model).most_guesses, 2);
  job.set_kv_cache_bytes(4 * kStateBytes + 8 * kMiB);
  const JobPlan without = Planned(job, hosts, *model);
  EXPECT_EQ(without.most_guesses, 0);
  EXPECT_EQ(without.state_slots, 8);
  EXPECT_EQ(without.stages[0].most_guesses(), 0);
  job.set_kv_cache_bytes(1);
  EXPECT_THAT(Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *model),
              HasSubstr("of 8 sequences (`max_num_seqs`) need"));
}

TEST(StateSlotsPlan, GivenBytesCountThemWithTheBlocks) {
  pb::ConfigureJob job = Caching();
  const std::vector<pb::Hello> hosts = {StageOn("node", 64 * kGiB)};
  job.set_kv_cache_bytes((8 + 4) * kStateBytes + 20 * kMiB);
  EXPECT_THAT(Planned(job, hosts, *Model(kName)).group_blocks, ElementsAre(20));
  job.set_kv_cache_bytes((8 + 4) * kStateBytes + kMiB - 1);
  const std::string why = Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *Model(kName));
  EXPECT_THAT(why, HasSubstr("one block of 32 tokens of stage 0 on node and the recurrent states of 8 sequences "
                             "(`max_num_seqs`) and of 4 snapshots (`prefix_caching`) need"));
  EXPECT_THAT(why, HasSubstr("lower `max_num_seqs`"));
  job.set_prefix_caching(false);
  EXPECT_EQ(Planned(job, hosts, *Model(kName)).state_slots, 8);
  job.set_max_num_seqs(1);
  job.set_kv_cache_bytes(1);
  EXPECT_THAT(Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *Model(kName)),
              HasSubstr("the recurrent states of 1 sequence (`max_num_seqs`) need"));
}

TEST(StateSlotsPlan, WhatDoesNotFitSaysWhatToLower) {
  pb::ConfigureJob job = Job();
  job.set_max_num_seqs(400);  // 20 GiB of states
  const std::vector<pb::Hello> hosts = {StageOn("node", 32 * kGiB)};
  const std::string why = Refusal(job, hosts, absl::StatusCode::kResourceExhausted, *Model(kName));
  EXPECT_THAT(why, HasSubstr("the recurrent states of 400 sequences (`max_num_seqs`) need"));
  EXPECT_THAT(why, HasSubstr("Lower `max_num_seqs`"));
  EXPECT_THAT(Refusal(job, {StageOn("a"), StageOn("b")}, absl::StatusCode::kResourceExhausted, *Model(kName)),
              HasSubstr("or lower `max_num_seqs`: each of 400 sequences has a recurrent state of 52690944 bytes"));
}

TEST(StateSlotsPlan, AStageKeepsThoseOfItsOwnLayersAlone) {
  const auto model = Model(kName);
  std::vector<pb::Hello> hosts(32, StageOn("node", 16 * kGiB));
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].set_host(absl::StrCat("node", i));
  const JobPlan plan = Planned(Caching(), hosts, *model);
  for (size_t s = 0; s < hosts.size(); ++s) {
    EXPECT_EQ(plan.stages[s].state_slots(), plan.state_slots) << "the ids are the same everywhere";
    const PoolUnits units = PoolUnitsOf(*model, plan.stages[s]).value();
    const bool attends = s % 4 == 3;
    EXPECT_EQ(units.state, attends ? 0 : kStateBytes / 24);
    EXPECT_THAT(units.blocks, ElementsAre(attends ? kMiB / 8 : 0));
    const StageMemory memory = StageMemoryOf(*model, plan.stages[s], plan.group_blocks, plan.state_slots).value();
    EXPECT_EQ(memory.states, units.state * static_cast<uint64_t>(plan.state_slots));
  }
}

}  // namespace
}  // namespace stagecoach
