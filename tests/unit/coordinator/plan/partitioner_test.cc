#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double LargestTime(const PartitionInput& input, const std::vector<LayerRange>& split, double* squares) {
  double largest = 0;
  *squares = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    double cost = 0;
    for (int64_t layer = split[s].begin; layer < split[s].end; ++layer) cost += input.layer_cost[layer];
    if (s == 0) cost += input.embedding_cost;
    if (s + 1 == split.size()) cost += input.head_cost;
    if (!input.stage_speed.empty()) cost /= input.stage_speed[s];
    largest = std::max(largest, cost);
    *squares += cost * cost;
  }
  return largest;
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

void ExpectOptimal(const PartitionInput& input) {
  const auto split = PartitionLayers(input);
  ASSERT_TRUE(split.ok()) << split.status();
  const int64_t layers = static_cast<int64_t>(input.layer_cost.size());
  ASSERT_EQ(static_cast<int>(split->size()), input.stages);
  EXPECT_EQ(split->back().end, layers);
  for (size_t s = 0; s < split->size(); ++s) {
    EXPECT_LT((*split)[s].begin, (*split)[s].end);
    EXPECT_EQ((*split)[s].begin, s == 0 ? 0 : (*split)[s - 1].end);
  }
  double squares = 0, least = std::numeric_limits<double>::infinity(), least_squares = least;
  const double largest = LargestTime(input, *split, &squares);
  std::vector<LayerRange> head;
  ForEachSplit(layers, input.stages, head, [&](const std::vector<LayerRange>& other) {
    double other_squares = 0;
    const double other_largest = LargestTime(input, other, &other_squares);
    if (other_largest < least - 1e-9) {
      least = other_largest;
      least_squares = other_squares;
    } else if (other_largest < least + 1e-9) {
      least_squares = std::min(least_squares, other_squares);
    }
  });
  EXPECT_NEAR(largest, least, 1e-9);
  EXPECT_NEAR(squares, least_squares, 1e-9 * std::max(1.0, least_squares));
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
