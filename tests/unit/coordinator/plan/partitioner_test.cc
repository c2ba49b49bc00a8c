#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double LargestTime(const PartitionInput& input, const std::vector<LayerRange>& split, double* squares) {
  double largest = 0;
  *squares = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    const PartCosts costs = input.stage_costs.empty()
                                ? PartCosts{input.layer_cost, input.embedding_cost, input.head_cost}
                                : input.stage_costs[s];
    double cost = 0;
    for (int64_t layer = split[s].begin; layer < split[s].end; ++layer) cost += costs.layers[layer];
    if (s == 0) cost += costs.embedding;
    if (s + 1 == split.size()) cost += costs.head;
    if (!input.stage_speed.empty()) cost /= input.stage_speed[s];
    if (!input.hop_cost.empty()) cost = std::max(cost, input.hop_cost[s]);
    largest = std::max(largest, cost);
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
  const int64_t layers = static_cast<int64_t>(input.layer_cost.size());
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
    EXPECT_THAT(std::string(split.status().message()), HasSubstr(std::to_string(least_lack) + " too few"));
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

TEST(Partitioner, MatchesBruteForceOnRandomCosts) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.0, 3.0);
  for (int round = 0; round < 400; ++round) {
    PartitionInput input;
    const int layers = 1 + static_cast<int>(random() % 11);
    const bool whole_numbers = random() % 2 == 0;  // many ties
    const auto draw = [&] { return whole_numbers ? std::floor(cost(random)) : cost(random); };
    for (int i = 0; i < layers; ++i) input.layer_cost.push_back(draw());
    input.embedding_cost = random() % 2 == 0 ? 0 : draw();
    input.head_cost = random() % 2 == 0 ? 0 : 4 * draw();
    input.stages = 1 + static_cast<int>(random() % layers);
    if (random() % 3 == 0) {
      for (int s = 0; s < input.stages; ++s) input.stage_speed.push_back(0.5 + cost(random));
    }
    ExpectOptimal(input);
    if (HasFailure()) return;
  }
}

// Stages on hosts of one to three, each with what two layers too few to two too many would take.
PartitionMemory RandomMemory(const PartitionInput& input, std::mt19937& random) {
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  PartitionMemory memory;
  const int64_t layers = static_cast<int64_t>(input.layer_cost.size());
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
    PartitionInput input;
    const int layers = 1 + static_cast<int>(random() % 10);
    const bool whole_numbers = random() % 2 == 0;  // many ties
    const auto draw = [&] { return whole_numbers ? std::floor(cost(random)) : cost(random); };
    for (int i = 0; i < layers; ++i) input.layer_cost.push_back(draw());
    input.head_cost = 2 * draw();
    input.stages = 1 + static_cast<int>(random() % layers);
    for (int s = 0; s < input.stages && round % 3 == 0; ++s) input.stage_speed.push_back(0.5 + cost(random));
    for (int s = 0; s < input.stages && round % 3 == 1; ++s) {
      input.stage_costs.push_back({.embedding = draw(), .head = draw()});
      for (int i = 0; i < layers; ++i) input.stage_costs.back().layers.push_back(draw());
    }
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
  PartitionInput input = {.layer_cost = std::vector<double>(10, 1.0), .stages = 2};
  input.memory = {.layer_bytes = std::vector<uint64_t>(10, 100),
                  .head_bytes = 50,
                  .stage_bytes = {7, 7},
                  .hosts = {{"small", 0, 1, first}, {"large", 1, 2, second}}};
  return input;
}

TEST(Partitioner, AHostWithTooLittleMemoryGetsAsManyLayersAsItHolds) {
  EXPECT_THAT(*PartitionLayers(TwoHosts(507, 557)), ElementsAre(LayerRange{0, 5}, LayerRange{5, 10}));
  EXPECT_THAT(*PartitionLayers(TwoHosts(506, 10000)), ElementsAre(LayerRange{0, 4}, LayerRange{4, 10}));
  EXPECT_THAT(*PartitionLayers(TwoHosts(207, 10000)), ElementsAre(LayerRange{0, 2}, LayerRange{2, 10}));
}

TEST(Partitioner, MemoryThatNobodyLacksChangesNothing) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    PartitionInput input;
    for (int i = 0; i < 12; ++i) input.layer_cost.push_back(static_cast<double>(1 + random() % 4));
    input.head_cost = static_cast<double>(random() % 10);
    input.stages = 1 + static_cast<int>(random() % 6);
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
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("stage 0 on small"), HasSubstr("layers 0 to 3"), HasSubstr("would need 407 bytes"),
                    HasSubstr("307 are available: 100 too few"), HasSubstr("stage 1 on large"),
                    HasSubstr("would need 657 bytes"), HasSubstr("1 too few"), HasSubstr("more hosts")));
}

TEST(Partitioner, BehindASlowLinkAStageComputesAsLongAsItSends) {
  const auto split = PartitionLayers({.layer_cost = std::vector<double>(10, 1.0), .stages = 2, .hop_cost = {7, 0}});
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 7}, LayerRange{7, 10}));
}

TEST(Partitioner, EqualLayersDifferByAtMostOneAndTheRemainderIsEarly) {
  for (int i = 1; i <= 100; ++i) {  // also where sums of costs round
    const auto split = PartitionLayers({.layer_cost = std::vector<double>(10, i * 0.01), .stages = 4});
    ASSERT_TRUE(split.ok());
    EXPECT_THAT(*split, ElementsAre(LayerRange{0, 3}, LayerRange{3, 6}, LayerRange{6, 8}, LayerRange{8, 10}));
  }
}

TEST(Partitioner, TheUnitOfTheCostsDoesNotMatter) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    PartitionInput exact, rounded;  // sums of tenths round, sums of whole numbers do not
    for (int i = 0; i < 12; ++i) {
      exact.layer_cost.push_back(static_cast<double>(1 + random() % 4));
      rounded.layer_cost.push_back(exact.layer_cost.back() * 0.1);
    }
    exact.stages = rounded.stages = 4;
    EXPECT_EQ(*PartitionLayers(exact), *PartitionLayers(rounded));
  }
}

TEST(Partitioner, TheStageWithTheHeadGetsFewerLayers) {
  const auto split = PartitionLayers({.layer_cost = std::vector<double>(28, 1.0), .head_cost = 10, .stages = 2});
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 19}, LayerRange{19, 28}));
}

TEST(Partitioner, AFasterStageGetsMoreLayers) {
  const auto split = PartitionLayers({.layer_cost = std::vector<double>(9, 1.0), .stages = 2, .stage_speed = {1, 2}});
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 3}, LayerRange{3, 9}));
}

TEST(Partitioner, AmongEqualMaximaTheMostEvenSplitWins) {
  // The head alone makes the last stage the slowest; the others must still share evenly.
  const auto split = PartitionLayers({.layer_cost = std::vector<double>(7, 1.0), .head_cost = 100, .stages = 3});
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 3}, LayerRange{3, 6}, LayerRange{6, 7}));
}

TEST(Partitioner, CostsOfZeroStillGiveEveryStageALayer) {
  const auto split = PartitionLayers({.layer_cost = {0, 0, 0}, .stages = 3});
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 1}, LayerRange{1, 2}, LayerRange{2, 3}));
}

TEST(Partitioner, RefusesWhatMakesNoSense) {
  const auto message = [](PartitionInput input) {
    const auto split = PartitionLayers(input);
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(split.status().message());
  };
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 3}), HasSubstr("3 stages for 2 layers"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 0}), HasSubstr("0 stages"));
  EXPECT_THAT(message({.layer_cost = {1, -1}, .stages = 1}), HasSubstr("layer 1 is -1"));
  EXPECT_THAT(message({.layer_cost = {1}, .embedding_cost = std::nan(""), .stages = 1}), HasSubstr("the embedding"));
  EXPECT_THAT(message({.layer_cost = {1}, .head_cost = -2, .stages = 1}), HasSubstr("the head is -2"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 2, .stage_speed = {1}}),
              HasSubstr("1 stage speeds for 2 stages"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 2, .stage_speed = {1, 0}}), HasSubstr("stage 1 is 0"));
}

TEST(Partitioner, RefusesListsOfTheWrongLength) {
  const auto message = [](const PartitionInput& input) {
    const auto split = PartitionLayers(input);
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(split.status().message());
  };
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 2, .hop_cost = {1}}), HasSubstr("1 costs of hops for 2 stages"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 2, .hop_cost = {1, -1}}), HasSubstr("hop of stage 1 is -1"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 1, .stage_costs = {{.layers = {1}}}}),
              HasSubstr("1 costs of layers for 2 layers"));
  EXPECT_THAT(message({.layer_cost = {1, 1}, .stages = 1, .stage_costs = {{.layers = {1, -1}}}}),
              HasSubstr("layer 1 on stage 0 is -1"));
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
  const auto split = ParseLayerSplit("10,9,9", 28, 3);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(*split, ElementsAre(LayerRange{0, 10}, LayerRange{10, 19}, LayerRange{19, 28}));
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

}  // namespace
}  // namespace stagecoach
