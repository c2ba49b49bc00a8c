#include "coordinator/plan/job_plan.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/json/json_value.h"
#include "common/model/footprint.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/plan/saved_plan.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

uint64_t WeightsOf(const ModelDescription& model, const pb::StageAssignment& stage) {
  return StageWeightBytes(model, stage.first_layer(), stage.last_layer(), stage.owns_embedding(), stage.owns_head());
}

uint64_t AllWeights(const ModelDescription& model) {
  return StageWeightBytes(model, 0, model.hyper.layer_count(), true, true);
}

// What the pools of the stages take, for a model like Model().
uint64_t PoolBytes(const JobPlan& plan, const pb::StageAssignment& stage) {
  return static_cast<uint64_t>(plan.group_blocks[0]) * 32 * 4096 *
         static_cast<uint64_t>(stage.last_layer() - stage.first_layer());
}

uint64_t PoolBytes(const JobPlan& plan) {
  uint64_t bytes = 0;
  for (const pb::StageAssignment& stage : plan.stages) bytes += PoolBytes(plan, stage);
  return bytes;
}

struct JobPlanTest : ::testing::Test {
  pb::ConfigureJob job = Job();
  const std::shared_ptr<const ModelDescription> model = Model();
};

TEST_F(JobPlanTest, RunsAModelLargerThanHalfOfTheFreeMemory) {
  const uint64_t weights = AllWeights(*model);
  ASSERT_GT(weights, 600 * kMiB);
  const JobPlan plan = Planned(Job(), {StageOn("node", weights + kGiB)});
  // Most of half a GiB, which is 145 blocks and 4680 tokens; buffers take a little of it.
  EXPECT_GT(plan.group_blocks[0], 100);
  EXPECT_LE(PoolBytes(plan), kGiB / 2);
  EXPECT_EQ(plan.context, int64_t{plan.group_blocks[0]} * 32);
}

TEST_F(JobPlanTest, ARelaunchTakesMoreOfTheRestWhereWhatWasAcceptedNeedsIt) {
  const std::vector<pb::Hello> hosts = {StageOn("node", AllWeights(*model) + kGiB)};
  const int64_t before = int64_t{PlanJob(job, hosts, *model, kEpoch)->group_blocks[0]} * 32;
  job.set_min_kv_tokens(static_cast<uint64_t>(before) * 3 / 2);
  const JobPlan more = Planned(job, hosts);
  EXPECT_GE(more.group_blocks[0], before * 3 / 2 / 32);
  EXPECT_LE(more.group_blocks[0], before * 3 / 2 / 32 + 1);
  job.set_min_kv_tokens(static_cast<uint64_t>(before) * 2);  // an eighth stays free
  EXPECT_EQ(PlanJob(job, hosts, *model, kEpoch).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(JobPlanTest, TakesNoMoreThanTheSequencesCanUse) {
  job.set_context(1000);
  const JobPlan plan = Planned(job, {StageOn("node", 64 * kGiB)});
  EXPECT_EQ(plan.group_blocks[0], 8 * 32);  // 1000 tokens are 32 blocks
  EXPECT_EQ(plan.context, 1000);
  job.set_context(0);
  const JobPlan whole = Planned(job, {StageOn("node", 512 * kGiB)});
  EXPECT_EQ(whole.context, 40960);
  EXPECT_EQ(whole.group_blocks[0], 8 * 40960 / 32);
}

TEST_F(JobPlanTest, StagesOfOneHostShareWhatItsWeightsLeave) {
  const uint64_t available = AllWeights(*model) + 2 * kGiB;
  const JobPlan one = Planned(Job(), {StageOn("node", available)});
  const JobPlan four = Planned(Job(), std::vector<pb::Hello>(4, StageOn("node", available)));
  uint64_t weights = 0;
  for (const pb::StageAssignment& stage : four.stages) weights += WeightsOf(*model, stage);
  // Each stage has buffers of its own, and first and last both hold the tied embedding; otherwise a host holds as much
  // as ever.
  EXPECT_LE(weights + PoolBytes(four), available);
  EXPECT_LE(PoolBytes(four), kGiB);
  EXPECT_GT(PoolBytes(four), kGiB / 2);
  EXPECT_LE(four.group_blocks[0], one.group_blocks[0]);
}

TEST_F(JobPlanTest, AHostsShareFollowsTheLayersOfEachStageSoThatNothingIsLeftOver) {
  job.add_layer_split(25);
  job.add_layer_split(3);
  const JobPlan plan = Planned(job, std::vector<pb::Hello>(2, StageOn("node", 4 * kGiB)));
  job.clear_layer_split();
  job.add_layer_split(14);
  job.add_layer_split(14);
  EXPECT_EQ(plan.group_blocks[0], Planned(job, std::vector<pb::Hello>(2, StageOn("node", 4 * kGiB))).group_blocks[0]);
}

TEST_F(JobPlanTest, TheSmallestHostDecidesOnTheBlocksOfAll) {
  const JobPlan small = Planned(Job(), {StageOn("a", 2 * kGiB), StageOn("b", 2 * kGiB)});
  const JobPlan mixed = Planned(Job(), {StageOn("a", 2 * kGiB), StageOn("b", 64 * kGiB)});
  const JobPlan large = Planned(Job(), {StageOn("a", 64 * kGiB), StageOn("b", 64 * kGiB)});
  EXPECT_LE(small.group_blocks[0], mixed.group_blocks[0]);
  EXPECT_LT(mixed.group_blocks[0], large.group_blocks[0]);
  for (const pb::StageAssignment& stage : mixed.stages) EXPECT_EQ(stage.group_blocks(0), mixed.group_blocks[0]);
  // Two stages beside each other on the small host leave less than one.
  const JobPlan crowded = Planned(Job(), {StageOn("a", 2 * kGiB), StageOn("a", 2 * kGiB), StageOn("b", 64 * kGiB)});
  EXPECT_LE(WeightsOf(*model, crowded.stages[0]) + WeightsOf(*model, crowded.stages[1]) +
                PoolBytes(crowded, crowded.stages[0]) + PoolBytes(crowded, crowded.stages[1]),
            2 * kGiB);
}

TEST_F(JobPlanTest, TheLeastThatAStageSeesOfItsHostHoldsForTheHost) {
  // Ranks of one host tell of its memory at different moments, or from control groups with different limits.
  const JobPlan both = Planned(Job(), {StageOn("a", 3 * kGiB), StageOn("a", 64 * kGiB)});
  EXPECT_EQ(both.group_blocks[0], Planned(Job(), {StageOn("a", 3 * kGiB), StageOn("a", 3 * kGiB)}).group_blocks[0]);
}

TEST_F(JobPlanTest, GivenBytesAreTakenForEachStageAsTheyAre) {
  job.set_kv_cache_bytes(uint64_t{100} * 32 * 4096 * 14);
  const JobPlan plan = Planned(job, {StageOn("a", 64 * kGiB), StageOn("b", 2 * kGiB)});
  int64_t most_layers = 0;
  for (const auto& stage : plan.stages) most_layers = std::max(most_layers, stage.last_layer() - stage.first_layer());
  EXPECT_EQ(plan.group_blocks[0], 100 * 14 / most_layers);
}

TEST_F(JobPlanTest, AModelThatDoesNotFitIsRefusedWithWhatIsThereAndWhatIsNeeded) {
  const uint64_t weights = AllWeights(*model);
  const std::string status = Refusal(Job(), {StageOn("node7", weights - 1)}, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status, AllOf(HasSubstr("node7"), HasSubstr(std::to_string(weights - 1)),
                            HasSubstr(std::to_string(weights)), HasSubstr("more memory")));
  EXPECT_THAT(status, Not(HasSubstr("kv_cache_bytes"))) << "no KV cache is small enough";
}

TEST_F(JobPlanTest, WhenHalfOfTheRestHoldsNoBlockTheMessageNamesTheField) {
  const uint64_t weights = AllWeights(*model);
  // Finds the least memory that is enough for the weights and buffers: there nothing is left for the cache.
  uint64_t low = weights, high = weights + kGiB;
  const auto message = [&](uint64_t available) {
    return std::string(PlanJob(Job(), {StageOn("node7", available)}, *model, kEpoch).status().message());
  };
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    (message(middle).find("kv_cache_bytes") == std::string::npos && !message(middle).empty() ? low : high) = middle;
  }
  EXPECT_THAT(message(high), AllOf(HasSubstr("node7"), HasSubstr("`kv_cache_bytes`"), HasSubstr(std::to_string(high)),
                                   HasSubstr(std::to_string(28 * 32 * 4096)), HasSubstr("32 tokens")));
  // A block more than that fits when it is asked for.
  job.set_kv_cache_bytes(28 * 32 * 4096);
  EXPECT_EQ(Planned(job, {StageOn("node7", high + 28 * 32 * 4096)}).group_blocks[0], 1);
}

// What a stage says it takes when it is loaded, from the assignment that it is given: ScratchSizesOf and
// StageFrameBytes, which the tests of stages hold against the memory they use.
TEST_F(JobPlanTest, LeavesRoomForTheBuffersThatTheStageWillTake) {
  const uint64_t weights = AllWeights(*model), pool = uint64_t{28} * 32 * 4096 * 64;
  job.set_kv_cache_bytes(pool);
  job.set_context(64 * 32);
  const JobPlan plan = Planned(job, {StageOn("node", weights + kGiB + pool)});
  const pb::StageAssignment& stage = plan.stages[0];
  EXPECT_THAT(stage.group_blocks(), ElementsAre(64));
  StepLimits limits;
  limits.max_rows = stage.max_rows();
  limits.max_slices = stage.max_slices();
  limits.context = stage.context();
  limits.threads = stage.threads();
  const uint64_t buffers =
      ScratchSizesOf(*model, 0, 28, true, limits).bytes() +
      LimitsOf(stage, model->hyper.hidden, model->hyper.vocab).StageFrameBytes(true, stage.in_flight());
  const uint64_t needed = weights + buffers + pool;
  EXPECT_TRUE(PlanJob(job, {StageOn("node", needed)}, *model, kEpoch).ok());
  EXPECT_FALSE(PlanJob(job, {StageOn("node", needed - 1)}, *model, kEpoch).ok());
}

TEST_F(JobPlanTest, GivenBytesThatAreTooManyOrTooFewAreRefusedByName) {
  job.set_kv_cache_bytes(1000);
  const std::vector<pb::Hello> stages = {StageOn("node1", 8 * kGiB), StageOn("node2", 2 * kGiB)};
  const std::string few = Refusal(job, stages, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(few, AllOf(HasSubstr("`kv_cache_bytes` is 1000"), HasSubstr("stage 0 on node1")));
  for (const uint64_t bytes : {4 * kGiB, UINT64_MAX}) {
    job.set_kv_cache_bytes(bytes);
    const std::string many = Refusal(job, stages, absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(many, AllOf(HasSubstr("`kv_cache_bytes` is " + std::to_string(bytes)),
                            HasSubstr(bytes == UINT64_MAX ? "node1" : "node2")));
  }
  // Each fits alone, but they share a host.
  job.set_kv_cache_bytes(2 * kGiB);
  EXPECT_TRUE(PlanJob(job, {StageOn("a", 3 * kGiB), StageOn("b", 3 * kGiB)}, *Model(), kEpoch).ok());
  EXPECT_FALSE(PlanJob(job, {StageOn("a", 3 * kGiB), StageOn("a", 3 * kGiB)}, *Model(), kEpoch).ok());
}

TEST_F(JobPlanTest, TellsEachStageItsLayersAndItsThreads) {
  job.set_max_prompt_logprobs(5);
  for (const int layers : {10, 9, 9}) job.add_layer_split(layers);
  const JobPlan plan = Planned(job, {StageOn("a", 8 * kGiB, 8), StageOn("a", 8 * kGiB, 8), StageOn("b", 8 * kGiB, 6)});
  std::vector<int64_t> ends;
  std::vector<int> threads;
  for (const pb::StageAssignment& stage : plan.stages) {
    ends.push_back(stage.last_layer());
    threads.push_back(stage.threads());
    EXPECT_EQ(stage.stages(), 3);
    EXPECT_EQ(stage.run_id(), kEpoch.run_id);
    EXPECT_EQ(stage.epoch(), kEpoch.epoch);
    EXPECT_EQ(stage.owns_embedding(), stage.stage() == 0);
    EXPECT_EQ(stage.owns_head(), stage.stage() == 2);
    EXPECT_EQ(stage.in_flight(), 4) << "one more for a decode group that is on its way back";
    EXPECT_GE(stage.max_open_tokens(), stage.context());
    EXPECT_EQ(stage.max_prompt_logprobs(), 5);
  }
  EXPECT_THAT(ends, ElementsAre(10, 19, 28));
  EXPECT_THAT(threads, ElementsAre(4, 4, 6));
}

TEST_F(JobPlanTest, OneMoreDecodeGroupThanStagesMayBeInFlightUnlessTheMicroBatchesAreGiven) {
  const auto planned = [](int micro_batches, int groups) {
    pb::ConfigureJob job = Job();
    job.set_micro_batches(micro_batches);
    job.set_decode_groups(groups);
    return PlanJob(job, {StageOn("a", 8 * kGiB), StageOn("b", 8 * kGiB)}, *Model(), kEpoch);
  };
  for (const auto& [micro_batches, groups, in_flight] :
       std::vector<std::array<int, 3>>{{0, 0, 3}, {0, 2, 3}, {0, 5, 5}, {2, 0, 2}, {4, 3, 4}}) {
    const auto plan = planned(micro_batches, groups).value();
    EXPECT_EQ(plan.micro_batches, micro_batches > 0 ? micro_batches : 2);
    EXPECT_EQ(plan.most_groups, in_flight);
    for (const pb::StageAssignment& stage : plan.stages) EXPECT_EQ(stage.in_flight(), in_flight);
  }
  EXPECT_THAT(planned(2, 3).status().message(), HasSubstr("`decode_groups` is 3, but only 2 micro-batches"));
}

std::vector<int64_t> LayersOf(const JobPlan& plan) {
  std::vector<int64_t> layers;
  for (const pb::StageAssignment& stage : plan.stages) layers.push_back(stage.last_layer() - stage.first_layer());
  return layers;
}

TEST_F(JobPlanTest, ASequenceHasAsManyGuessedRowsInFlightAsThereAreMicroBatchesBesideItsOwn) {
  const auto most = [](const pb::ConfigureJob& job, int hosts) {
    std::vector<pb::Hello> stages;
    for (int i = 0; i < hosts; ++i) stages.push_back(StageOn(absl::StrCat("node", i)));
    const JobPlan plan = Planned(job, stages);
    for (const pb::StageAssignment& stage : plan.stages) EXPECT_EQ(stage.most_guesses(), plan.most_guesses);
    EXPECT_LT(plan.most_guesses, plan.most_groups);
    return plan.most_guesses;
  };
  pb::ConfigureJob job = Job();
  EXPECT_EQ(most(job, 4), 0) << "unless it speculates";
  job.set_speculate("off");
  EXPECT_EQ(most(job, 4), 0);
  job.set_speculate("auto");
  EXPECT_EQ(most(job, 4), 4);
  EXPECT_EQ(most(job, 20), kMostGuessRows - 1);
  EXPECT_EQ(most(job, 1), 0) << "one stage is never idle";
  job.set_guess_rows(3);
  EXPECT_EQ(most(job, 4), 2);
  EXPECT_EQ(most(job, 1), 1) << "no more than micro-batches";
  job.set_micro_batches(2);
  EXPECT_EQ(most(job, 4), 1);
}

TEST_F(JobPlanTest, ASmallHostGetsTheLayersItHasRoomFor) {
  // A layer has 16.7 MB; the buffers of a stage with 512 rows take some 40.
  EXPECT_THAT(LayersOf(Planned(Job(), {StageOn("a", 8 * kGiB), StageOn("b", 8 * kGiB)})), ElementsAre(19, 9));
  const JobPlan small = Planned(Job(), {StageOn("a", 400 * kMiB), StageOn("b", 8 * kGiB)});
  const int64_t held = LayersOf(small)[0];
  EXPECT_LT(held, 19);
  EXPECT_GT(held, 5);
  // One more layer does not fit.
  job.add_layer_split(held + 1);
  job.add_layer_split(27 - held);
  EXPECT_FALSE(PlanJob(job, {StageOn("a", 400 * kMiB), StageOn("b", 8 * kGiB)}, *model, kEpoch).ok());
}

TEST_F(JobPlanTest, EqualHostsShareTheLayersAsIfThereWereNoLimits) {
  for (int stages = 1; stages <= 28; ++stages) {
    const auto parts = PartsOf(*model, KvType::kF32, /*bf16_dot=*/false);
    ASSERT_TRUE(parts.ok()) << parts.status();
    std::vector<double> layer_bytes;
    for (const PartWork& layer : parts->layers) layer_bytes.push_back(layer.bytes_kept);
    const auto split = PartitionLayers({.stages = stages, .costs = {{layer_bytes, parts->head.bytes_kept}}}).value();
    std::vector<pb::Hello> hosts;
    for (int i = 0; i < stages; ++i) hosts.push_back(StageOn("n" + std::to_string(i), 2 * kGiB));
    const JobPlan plan = Planned(Job(), hosts);
    for (int i = 0; i < stages; ++i) {
      EXPECT_EQ(plan.stages[i].first_layer(), split[i].begin);
      EXPECT_EQ(plan.stages[i].last_layer(), split[i].end);
    }
  }
}

TEST_F(JobPlanTest, WhereNoSplitFitsEveryHostThatLacksMemoryIsNamed) {
  const std::string status =
      Refusal(Job(), {StageOn("a", 200 * kMiB), StageOn("b", 300 * kMiB)}, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status, AllOf(HasSubstr("fit in no split"), HasSubstr("stage 0 on a with layers 0 to "),
                            HasSubstr("stage 1 on b"), HasSubstr("209715200 are available"), HasSubstr("too few")));
}

TEST_F(JobPlanTest, CostsOfTheCallerDecideTheSplit) {
  const std::vector<double> slow(28, 3.0), fast(28, 1.0);
  const PartitionInput costs = {.stages = 2, .costs = {{slow}, {fast}}};
  const auto plan = PlanJob(Job(), {StageOn("a", 8 * kGiB), StageOn("b", 8 * kGiB)}, *Model(), kEpoch, &costs).value();
  EXPECT_THAT(LayersOf(plan), ElementsAre(7, 21));
}

TEST_F(JobPlanTest, EveryStageComputesWithTheBestOfItsHostWithinOneBitClass) {
  std::vector<pb::Hello> stages = {StageOn("old", 8 * kGiB), StageOn("new", 8 * kGiB)};
  stages[1].add_isas(pb::INSTRUCTION_SET_AVX512_VNNI);
  stages[1].add_isas(pb::INSTRUCTION_SET_AVX512_BF16);
  JobPlan plan = Planned(Job(), stages);
  EXPECT_FALSE(plan.bf16_dot);
  EXPECT_EQ(plan.stages[0].isa(), pb::INSTRUCTION_SET_AVX2);
  EXPECT_EQ(plan.stages[1].isa(), pb::INSTRUCTION_SET_AVX512_VNNI);

  stages[0] = stages[1];
  plan = Planned(Job(), stages);
  EXPECT_TRUE(plan.bf16_dot);
  for (const pb::StageAssignment& stage : plan.stages) EXPECT_EQ(stage.isa(), pb::INSTRUCTION_SET_AVX512_BF16);

  job.set_bf16_dot(false);  // a spare host lacks it
  plan = Planned(job, stages);
  for (const pb::StageAssignment& stage : plan.stages) EXPECT_EQ(stage.isa(), pb::INSTRUCTION_SET_AVX512_VNNI);
}

TEST_F(JobPlanTest, AHostWithoutTheInstructionSetOrTheBitClassIsNamed) {
  std::vector<pb::Hello> stages = {StageOn("old", 8 * kGiB), StageOn("new", 8 * kGiB)};
  stages[1].add_isas(pb::INSTRUCTION_SET_AVX512_BF16);
  job.set_bf16_dot(true);
  absl::Status status = PlanJob(job, stages, *Model(), kEpoch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("stage 0 on old has avx2 and not the BF16 dot"), HasSubstr("`isa`")));
  job = Job();
  job.set_isa(pb::INSTRUCTION_SET_AVX512);
  status = PlanJob(job, stages, *Model(), kEpoch).status();
  EXPECT_THAT(status.message(), HasSubstr("stage 0 on old has avx2 and not avx512;"));
  job.set_isa(pb::INSTRUCTION_SET_AVX2);
  const JobPlan plan = Planned(job, stages);
  for (const pb::StageAssignment& stage : plan.stages) EXPECT_EQ(stage.isa(), pb::INSTRUCTION_SET_AVX2);
}

TEST(PlanJob, ARelaunchThatCannotHoldWhatWasAcceptedSaysWhatItNeeds) {
  pb::ConfigureJob job = Job();
  job.set_context(2048);
  job.set_kv_cache_bytes(uint64_t{28} * 4096 * 32 * 64);  // 64 blocks
  job.set_min_kv_tokens(64 * 32);
  const std::vector<pb::Hello> hosts = {StageOn("a", 8 * kGiB)};
  EXPECT_EQ(Planned(job, hosts).group_blocks, std::vector<int32_t>({64}));
  job.set_min_kv_tokens(64 * 32 + 1);
  const std::string status = Refusal(job, hosts, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status, AllOf(HasSubstr("room for 2048 tokens (64 blocks of 32)"), HasSubstr("needs 2049"),
                            HasSubstr("`kv_cache_bytes`")));
}

SavedPlan Saved() {
  SavedPlan plan;
  SetModelOf(*Model(), &plan);
  plan.stages = {{"a", 20, 4, kGiB}, {"a", 4, 4, kGiB}, {"b.cluster", 4, 0, kGiB}};
  plan.threads = 2;
  plan.micro_batches = 5;
  plan.prefill_chunk = 128;
  return plan;
}

std::string DocumentOf(const Json& plan) { return Json{{"other", 1}, {"plan", plan}}.dump(); }

TEST(SavedPlan, WhatIsWrittenIsRead) {
  EXPECT_EQ(ParseSavedPlan("p.json", DocumentOf(SavedPlanJson(Saved()))).value(), Saved());
}

TEST(SavedPlan, ListsItsHostsForALauncher) {
  SavedPlan plan = Saved();
  EXPECT_EQ(HostListOf(plan), "a:2,b.cluster:1");
  plan.here = true;
  EXPECT_EQ(HostListOf(plan), "");
}

TEST(SavedPlan, SaysWhatIsWrongInTheFile) {
  const auto message = [](const std::string& text) {
    const absl::Status status = ParseSavedPlan("p.json", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  for (const char* text : {"", "[]", "{", "3", "{\"plan\": 3}", "{\"other\": {}}"}) {
    EXPECT_THAT(message(text), HasSubstr("'p.json' is no saved plan"));
  }
  const Json good = SavedPlanJson(Saved());
  const auto with = [&](const std::string& field, const Json& value) {
    Json changed = good;
    changed[field] = value;
    return message(DocumentOf(changed));
  };
  EXPECT_THAT(with("version", 2), HasSubstr("plan.version: expected an integer, 1 to 1, found 2"));
  EXPECT_THAT(with("layers", 0), HasSubstr("plan.layers: expected an integer, 1 to 1024, found 0"));
  EXPECT_THAT(with("layers", 27), HasSubstr("add up to 28, but plan.layers is 27"));
  EXPECT_THAT(with("file_bytes", -1), AllOf(HasSubstr("plan.file_bytes: "), HasSubstr("found -1")));
  EXPECT_THAT(with("file_bytes", UINT64_MAX),
              AllOf(HasSubstr("plan.file_bytes: "), HasSubstr("found 18446744073709551615")));
  EXPECT_THAT(with("header_hash", "xyz"), HasSubstr("plan.header_hash: expected 16 hexadecimal digits, found 'xyz'"));
  EXPECT_THAT(with("here", 1), HasSubstr("plan.here: expected true or false, found 1"));
  EXPECT_THAT(with("stages", Json::array()),
              HasSubstr("plan.stages: expected a list of 1 to 1024 stages, found a list of 0"));
  EXPECT_THAT(with("threads", 2.5), AllOf(HasSubstr("plan.threads: "), HasSubstr("found 2.5")));
  EXPECT_THAT(with("micro_batches", 0), AllOf(HasSubstr("plan.micro_batches: "), HasSubstr("found 0")));
  Json stage = good;
  stage["stages"][1]["host"] = "";
  EXPECT_THAT(message(DocumentOf(stage)),
              HasSubstr("plan.stages[1].host: expected a text of 1 to 255 bytes, found ''"));
  stage["stages"][1].erase("host");
  EXPECT_THAT(message(DocumentOf(stage)), HasSubstr("plan.stages[1].host: expected a value, found none"));
}

TEST(SavedPlan, FitsTheHostsAndTheModelThatItWasMadeFor) {
  const pb::PlannedFor planned = PlannedForOf(Saved());
  const std::vector<pb::Hello> hosts = {StageOn("a"), StageOn("a"), StageOn("b", 8 * kGiB, 7)};
  EXPECT_TRUE(CheckPlanned(planned, hosts, *Model()).ok()) << CheckPlanned(planned, hosts, *Model());
}

TEST(SavedPlan, SaysAllThatDiffers) {
  const pb::PlannedFor planned = PlannedForOf(Saved());
  const absl::Status status =
      CheckPlanned(planned, {StageOn("a", kGiB, 2), StageOn("a"), StageOn("c")}, *Model("qwen3-1.7b/q8_0"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("this one has 1828474880"), HasSubstr("whose header has the hash"),
                    Not(HasSubstr("layers, ")), HasSubstr("gives a 4 cores for stage 0, which may now use 2"),
                    HasSubstr("takes 2147483648 bytes of memory on a, where 1073741824 are available"),
                    HasSubstr("stage 2 on b.cluster, which is now on c"), HasSubstr("coordinator plan"),
                    HasSubstr("`planned_for`")));
  EXPECT_THAT(CheckPlanned(planned, {StageOn("a")}, *Model()).message(),
              HasSubstr("it is for 3 stages, this job has 1"));
  EXPECT_THAT(CheckPlanned(planned, {StageOn("a")}, *Model("tiny/q8_0")).message(),
              HasSubstr("a model of 28 layers, this one has 3"));
}

TEST(SavedPlan, AnAddressMayBeAnyHost) {
  SavedPlan saved = Saved();
  saved.stages[2].host = "10.1.2.3";
  EXPECT_TRUE(CheckPlanned(PlannedForOf(saved), {StageOn("a"), StageOn("a"), StageOn("z")}, *Model()).ok());
}

// A plan fixes these, so they are refused beside it.
TEST(SavedPlan, IsNotToldToGiveWhatItFixes) {
  pb::ConfigureJob job = Job();
  *job.mutable_planned_for() = PlannedForOf(Saved());
  const std::vector<pb::Hello> hosts = {StageOn("a"), StageOn("a"), StageOn("b", 8 * kGiB, 7)};
  job.set_micro_batches(2);
  job.set_decode_groups(3);
  EXPECT_THAT(Refusal(job, hosts, absl::StatusCode::kInvalidArgument), Not(HasSubstr("`micro_batches`")));
  job.set_stages(4);
  EXPECT_THAT(Refusal(job, hosts, absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("`planned_for` asks for 4 stages"), Not(HasSubstr("`stages`"))));
}

TEST(SavedPlan, IsHeldAgainstTheHostsInTheFirstLaunchAlone) {
  pb::ConfigureJob job = Job();
  *job.mutable_planned_for() = PlannedForOf(Saved());
  const std::vector<pb::Hello> hosts = {StageOn("a"), StageOn("a"), StageOn("c")};
  Refusal(job, hosts, absl::StatusCode::kFailedPrecondition);
  job.add_fingerprints();
  Planned(job, hosts);
}

}  // namespace
}  // namespace stagecoach
