#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "coordinator/plan/stage_memory.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

PartitionInput Alike(int stages, std::vector<double> layers, double head = 0) {
  return {.stages = stages, .costs = {{std::move(layers), head}}};
}

double LargestTime(const PartitionInput& input, const std::vector<LayerRange>& split, double* squares) {
  double largest = 0;
  *squares = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    const PartCosts& costs = input.costs[input.costs.size() > 1 ? s : 0];
    double cost = 0;
    for (int64_t layer = split[s].begin; layer < split[s].end; ++layer) cost += costs.layers[layer];
    if (s + 1 == split.size()) cost += costs.head;
    largest = std::max({largest, cost, input.hop_cost.empty() ? 0 : input.hop_cost[s]});
    *squares += cost * cost;
  }
  return largest;
}

// How much each host lacks.
std::vector<uint64_t> Lacks(const PartitionMemory& memory, const std::vector<LayerRange>& split) {
  std::vector<uint64_t> lacks;
  for (const HostMemory& host : memory.hosts) {
    uint64_t bytes = 0;
    for (int s = host.first_stage; s < host.last_stage; ++s) {
      bytes += memory.stage_bytes[s];
      for (int64_t layer = split[s].begin; layer < split[s].end; ++layer) bytes += memory.layer_bytes[layer];
      if (s == 0) bytes += memory.embedding_bytes;
      if (s + 1 == static_cast<int>(split.size())) bytes += memory.head_bytes;
    }
    if (split.size() == 1) bytes -= memory.tied_bytes;
    lacks.push_back(bytes > host.available_bytes ? bytes - host.available_bytes : 0);
  }
  return lacks;
}

uint64_t LargestLack(const PartitionMemory& memory, const std::vector<LayerRange>& split) {
  const std::vector<uint64_t> lacks = Lacks(memory, split);
  return lacks.empty() ? 0 : *std::max_element(lacks.begin(), lacks.end());
}

// Every way to cut the layers into stages.
void ForEachSplit(int64_t layers, int stages, std::vector<LayerRange>& head,
                  const std::function<void(const std::vector<LayerRange>&)>& visit) {
  const int64_t begin = head.empty() ? 0 : head.back().end;
  if (stages == 1) {
    head.push_back({begin, layers});
    visit(head);
    head.pop_back();
    return;
  }
  for (int64_t end = begin + 1; end <= layers - (stages - 1); ++end) {
    head.push_back({begin, end});
    ForEachSplit(layers, stages - 1, head, visit);
    head.pop_back();
  }
}

enum class Outcome { kBestOfAll, kMemoryBinds, kNothingFits };

// Holds the answer against every split there is.
void ExpectOptimal(const PartitionInput& input, Outcome* outcome = nullptr) {
  const auto split = PartitionLayers(input);
  const auto layers = static_cast<int64_t>(input.costs[0].layers.size());
  double least = std::numeric_limits<double>::infinity(), least_squares = least, best_of_all = least;
  uint64_t least_lack = std::numeric_limits<uint64_t>::max();
  std::vector<LayerRange> head;
  ForEachSplit(layers, input.stages, head, [&](const std::vector<LayerRange>& other) {
    double other_squares = 0;
    const double other_largest = LargestTime(input, other, &other_squares);
    best_of_all = std::min(best_of_all, other_largest);
    const uint64_t lack = LargestLack(input.memory, other);
    least_lack = std::min(least_lack, lack);
    if (lack > 0) return;
    if (other_largest < least - 1e-9) {
      least = other_largest;
      least_squares = other_squares;
    } else if (other_largest < least + 1e-9) {
      least_squares = std::min(least_squares, other_squares);
    }
  });
  if (least_lack > 0) {
    if (outcome != nullptr) *outcome = Outcome::kNothingFits;
    ASSERT_EQ(split.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(split.status().message(), HasSubstr(std::to_string(least_lack) + " too few"));
    return;
  }
  if (outcome != nullptr) *outcome = least > best_of_all + 1e-9 ? Outcome::kMemoryBinds : Outcome::kBestOfAll;
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(static_cast<int>(split->size()), input.stages);
  EXPECT_EQ(split->back().end, layers);
  for (size_t s = 0; s < split->size(); ++s) {
    EXPECT_LT((*split)[s].begin, (*split)[s].end);
    EXPECT_EQ((*split)[s].begin, s == 0 ? 0 : (*split)[s - 1].end);
  }
  double squares = 0;
  const double largest = LargestTime(input, *split, &squares);
  EXPECT_NEAR(largest, least, 1e-9);
  EXPECT_NEAR(squares, least_squares, 1e-9 * std::max(1.0, least_squares));
  EXPECT_EQ(LargestLack(input.memory, *split), 0u);
}

// One for all stages, or each stage's own.
void DrawCosts(int layers, bool own, const std::function<double()>& draw, PartitionInput* input) {
  for (int s = 0; s < (own ? input->stages : 1); ++s) {
    PartCosts& costs = input->costs.emplace_back();
    for (int i = 0; i < layers; ++i) costs.layers.push_back(draw());
    costs.head = std::max(0.0, 4 * draw() - 3);  // often none
  }
}

TEST(Partitioner, MatchesBruteForceOnRandomCosts) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.0, 3.0);
  for (int round = 0; round < 400; ++round) {
    const int layers = 1 + static_cast<int>(random() % 11);
    const bool whole_numbers = random() % 2 == 0;  // many ties
    const auto draw = [&] { return whole_numbers ? std::floor(cost(random)) : cost(random); };
    PartitionInput input = {.stages = 1 + static_cast<int>(random() % layers)};
    DrawCosts(layers, /*own=*/random() % 3 == 0, draw, &input);
    ExpectOptimal(input);
    if (HasFailure()) return;
  }
}

// Stages on hosts of one to three, each with what two layers too few to two too many would take.
PartitionMemory RandomMemory(const PartitionInput& input, std::mt19937& random) {
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  PartitionMemory memory;
  const auto layers = static_cast<int64_t>(input.costs[0].layers.size());
  uint64_t all = 0;
  for (int64_t i = 0; i < layers; ++i) memory.layer_bytes.push_back(1 + draw(3));
  for (const uint64_t bytes : memory.layer_bytes) all += bytes;
  memory.embedding_bytes = draw(4);
  memory.head_bytes = draw(8);
  memory.tied_bytes = std::min(memory.embedding_bytes, memory.head_bytes);
  for (int s = 0; s < input.stages; ++s) memory.stage_bytes.push_back(draw(2));
  for (int s = 0; s < input.stages;) {
    const int last = std::min(input.stages, s + 1 + static_cast<int>(draw(2)));
    const uint64_t share = (all + 14) * static_cast<uint64_t>(last - s) / static_cast<uint64_t>(input.stages);
    memory.hosts.push_back({"h", s, last, share / 2 + draw(share)});
    s = last;
  }
  return memory;
}

TEST(Partitioner, MatchesBruteForceWhereMemoryBinds) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> cost(0.0, 3.0);
  std::map<Outcome, int> seen;
  for (int round = 0; round < 1500; ++round) {
    const int layers = 1 + static_cast<int>(random() % 10);
    const bool whole_numbers = random() % 2 == 0;  // many ties
    const auto draw = [&] { return whole_numbers ? std::floor(cost(random)) : cost(random); };
    PartitionInput input = {.stages = 1 + static_cast<int>(random() % layers)};
    DrawCosts(layers, /*own=*/round % 3 == 1, draw, &input);
    for (int s = 0; s < input.stages && round % 2 == 0; ++s) input.hop_cost.push_back(draw());
    input.memory = RandomMemory(input, random);
    Outcome outcome;
    ExpectOptimal(input, &outcome);
    ++seen[outcome];
    if (HasFailure()) return;
  }
  for (const Outcome outcome : {Outcome::kBestOfAll, Outcome::kMemoryBinds, Outcome::kNothingFits}) {
    EXPECT_GT(seen[outcome], 30) << "the instances are too much alike";
  }
}

PartitionInput TwoHosts(uint64_t first, uint64_t second) {
  PartitionInput input = Alike(2, std::vector<double>(10, 1.0));
  input.memory = {.layer_bytes = std::vector<uint64_t>(10, 100),
                  .head_bytes = 50,
                  .stage_bytes = {7, 7},
                  .hosts = {{"small", 0, 1, first}, {"large", 1, 2, second}}};
  return input;
}

TEST(Partitioner, MemoryThatNobodyLacksChangesNothing) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    PartitionInput input = {.stages = 1 + static_cast<int>(random() % 6)};
    DrawCosts(
        12, /*own=*/false, [&] { return static_cast<double>(1 + random() % 4); }, &input);
    const auto before = PartitionLayers(input);
    input.memory = {.layer_bytes = std::vector<uint64_t>(12, 10),
                    .stage_bytes = std::vector<uint64_t>(static_cast<size_t>(input.stages), 1),
                    .hosts = {{"h", 0, input.stages, 1000}}};
    EXPECT_EQ(*before, *PartitionLayers(input));
  }
}

TEST(Partitioner, SaysWhichHostLacksHowMuchWhereNothingFits) {
  const absl::Status status = PartitionLayers(TwoHosts(307, 656)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // Three layers on the first leave 757 bytes for the second, four are 100 too many for the first: 100 at best.
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("stage 0 on small"), HasSubstr("layers 0 to 3"), HasSubstr("would need 407 bytes"),
                    HasSubstr("307 are available: 100 too few"), HasSubstr("stage 1 on large"),
                    HasSubstr("would need 657 bytes"), HasSubstr("1 too few"), HasSubstr("more hosts")));
}

TEST(Partitioner, EqualLayersDifferByAtMostOneAndTheRemainderIsEarly) {
  for (int i = 1; i <= 100; ++i) {  // also where sums of costs round
    EXPECT_THAT(PartitionLayers(Alike(4, std::vector<double>(10, i * 0.01))).value(),
                ElementsAre(LayerRange{0, 3}, LayerRange{3, 6}, LayerRange{6, 8}, LayerRange{8, 10}));
  }
}

TEST(Partitioner, TheUnitOfTheCostsDoesNotMatter) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> exact, rounded;  // sums of tenths round, sums of whole numbers do not
    for (int i = 0; i < 12; ++i) {
      exact.push_back(static_cast<double>(1 + random() % 4));
      rounded.push_back(exact.back() * 0.1);
    }
    EXPECT_EQ(*PartitionLayers(Alike(4, exact)), *PartitionLayers(Alike(4, rounded)));
  }
}

TEST(Partitioner, RefusesWhatMakesNoSense) {
  const auto message = [](const PartitionInput& input) {
    const auto split = PartitionLayers(input);
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(split.status().message());
  };
  EXPECT_THAT(message(Alike(3, {1, 1})), HasSubstr("3 stages for 2 layers"));
  EXPECT_THAT(message(Alike(0, {1, 1})), HasSubstr("0 stages"));
  EXPECT_THAT(message(Alike(1, {1, -1})), HasSubstr("layer 1 is -1"));
  EXPECT_THAT(message(Alike(1, {std::nan("")})), HasSubstr("layer 0 is nan"));
  EXPECT_THAT(message(Alike(1, {1}, -2)), HasSubstr("the head is -2"));
  const PartCosts two = {{1, 1}}, bad = {{1, -1}}, one = {{1}};
  EXPECT_THAT(message({.stages = 3, .costs = {two, two}}), HasSubstr("3 stages for 2 layers"));
  EXPECT_THAT(message({.stages = 1, .costs = {two, two}}), HasSubstr("2 stages' own costs for 1 stages"));
  EXPECT_THAT(message({.stages = 2, .costs = {two, one}}), HasSubstr("1 costs of layers for 2 layers"));
  EXPECT_THAT(message({.stages = 2, .costs = {two, bad}}), HasSubstr("layer 1 on stage 1 is -1"));
  EXPECT_THAT(message({.stages = 2, .costs = {two}, .hop_cost = {1}}), HasSubstr("1 costs of hops for 2 stages"));
  EXPECT_THAT(message({.stages = 2, .costs = {two}, .hop_cost = {1, -1}}), HasSubstr("hop of stage 1 is -1"));
  PartitionInput input = TwoHosts(1000, 1000);
  input.memory.hosts.pop_back();
  EXPECT_THAT(message(input), HasSubstr("the hosts have 1 stages, expected 2"));
  input.memory.hosts.push_back({"later", 2, 3, 1});
  EXPECT_THAT(message(input), HasSubstr("host later has stages 2 to 3"));
  input = TwoHosts(1000, 1000);
  input.memory.layer_bytes.pop_back();
  EXPECT_THAT(message(input), HasSubstr("9 sizes of layers for 10 layers"));
}

TEST(LayerSplit, ByHandIsTakenAsGiven) {
  const auto split = ParseLayerSplit("10,9,9", 28, 3).value();
  EXPECT_THAT(split, ElementsAre(LayerRange{0, 10}, LayerRange{10, 19}, LayerRange{19, 28}));
}

TEST(LayerSplit, SaysWhatIsWrongWithAllNumbers) {
  const auto message = [](absl::string_view split, int64_t layers, int stages) {
    const auto result = ParseLayerSplit(split, layers, stages);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_EQ(message("10,9,8", 28, 3), "layer split '10,9,8' adds up to 27 layers, the model has 28");
  EXPECT_EQ(message("10,9,10", 28, 3), "layer split '10,9,10' adds up to 29 layers, the model has 28");
  EXPECT_EQ(message("14,14", 28, 3), "layer split '14,14' has 2 numbers for 3 stages");
  EXPECT_THAT(message("28,0", 28, 2), HasSubstr("0 layers"));
  EXPECT_THAT(message("29,-1", 28, 2), HasSubstr("-1 layers"));
  EXPECT_THAT(message("-1,29", 28, 2), HasSubstr("-1 layers"));
  EXPECT_THAT(message("14,x", 28, 2), HasSubstr("'x'"));
  EXPECT_THAT(message("", 28, 1), HasSubstr("''"));
  EXPECT_THAT(message("99999999999999999999,1", 28, 2), HasSubstr("99999999999999999999"));
  EXPECT_THAT(message("1,1,1", 2, 3), HasSubstr("3 stages for 2 layers"));
}

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
  const PoolUnits half = *PoolUnitsOf(*model, stage);
  stage.set_kv_type(pb::KV_TYPE_F32);
  EXPECT_THAT(PoolUnitsOf(*model, stage)->blocks, ElementsAre(2 * half.blocks[0]));
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
  // With chunks of four rows a window of 128 lies in up to 6 blocks, and so many more as 16 guessed rows reach beyond.
  job = Job();
  job.set_prefill_chunk(4);
  EXPECT_THAT(PoolSizes(job, WindowedModel()->hyper, 3).Blocks(1000), ElementsAre(1000, 8 * 6));
  EXPECT_THAT(PoolSizes(job, WindowedModel()->hyper, 63).Blocks(1000), ElementsAre(1000, 8 * 7));
}

TEST(PoolSizes, WhatFitsIsTheMostWhoseBytesDo) {
  const PoolSizes pools(Job(), WindowedModel()->hyper);
  const PoolUnits bytes = {.blocks = {10, 7}};
  EXPECT_EQ(pools.Bytes(100, bytes), 1700u);
  EXPECT_EQ(pools.Bytes(1000, bytes), 10000u + 7 * kWindowBlocks);
  for (const uint64_t blocks : {uint64_t{1}, uint64_t{167}, uint64_t{168}, uint64_t{169}, uint64_t{54321}}) {
    EXPECT_EQ(pools.Fitting(pools.Bytes(blocks, bytes), bytes), blocks);
    EXPECT_EQ(pools.Fitting(pools.Bytes(blocks, bytes) - 1, bytes), blocks - 1);
  }
  EXPECT_EQ(pools.Fitting(16, bytes), 0u);
  EXPECT_EQ(pools.Fitting(1 << 20, {.blocks = {0, 7}}), uint64_t{1} << 30) << "as many as a pool can have";
  EXPECT_EQ(pools.Fitting(~uint64_t{0}, {.blocks = {uint64_t{1} << 60, uint64_t{1} << 60}}), 1u) << "no sum overflows";
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
