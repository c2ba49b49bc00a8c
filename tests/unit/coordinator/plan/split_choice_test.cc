#include "coordinator/plan/choice/split_choice.h"

#include <algorithm>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr int64_t kLayers = 9;

double CostIn(const SplitSums& sums, const std::vector<LayerRange>& split, size_t stage) {
  const std::vector<double>& before = sums.before[stage];
  return before[split[stage].end] - before[split[stage].begin] + (stage + 1 == split.size() ? sums.head : 0);
}

double SecondsIn(const SplitTerm& term, const std::vector<LayerRange>& split) {
  double most = 0, sum = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    most = std::max(most, CostIn(*term.sums, split, s));
    sum += CostIn(*term.sums, split, s);
  }
  return term.times * std::max({term.floor, term.slowest * most, term.around * (term.fixed + sum)});
}

double SecondsOf(const SplitLoad& load, const std::vector<LayerRange>& split) {
  double least = std::numeric_limits<double>::infinity();
  for (const SplitTerm& decode : load.decode) {
    for (const SplitTerm& prompts : load.prompts) {
      if (decode.in_flight > prompts.in_flight) continue;
      least = std::min(least, SecondsIn(decode, split) + SecondsIn(prompts, split));
    }
  }
  return least;
}

struct RandomLoad {
  std::mt19937 random;

  double Draw(double low, double high) { return std::uniform_real_distribution<>(low, high)(random); }

  SplitTerm Term(size_t stages, int in_flight) {
    auto sums = std::make_shared<SplitSums>();
    for (size_t s = 0; s < stages; ++s) {
      std::vector<double>& before = sums->before.emplace_back(1, 0.0);
      const double slow = Draw(1, 4);
      for (int64_t layer = 0; layer < kLayers; ++layer) before.push_back(before.back() + slow * Draw(0.8, 1.2));
    }
    sums->head = Draw(0, 5);
    return {.sums = std::move(sums),
            .in_flight = in_flight,
            .times = Draw(0.5, 2),
            .floor = Draw(0, 10),
            .slowest = Draw(0.5, 2),
            .around = Draw(0.2, 1),
            .fixed = Draw(0, 5)};
  }
};

// Of 4 stages on 3 hosts, of which the second has two.
TEST(SplitChoice, NoSplitThatFitsTakesTheLoadLessTime) {
  const std::vector<HostMemory> hosts = {{"a", 0, 1, 0}, {"b", 1, 3, 0}, {"c", 3, 4, 0}};
  RandomLoad random;
  for (int round = 0; round < 200; ++round) {
    SplitLoad load;
    for (int in_flight = 1; in_flight <= 3; ++in_flight) {
      load.prompts.push_back(random.Term(4, in_flight));
      load.decode.push_back(random.Term(4, in_flight));
    }
    const std::vector<int64_t> most = {2 + round % 3, 4, 3 + round % 2};  // layers of a host; 9 in the least case
    const HostFits fits = [&](size_t host, int64_t begin, int64_t end) { return end - begin <= most[host]; };
    double best = std::numeric_limits<double>::infinity();
    for (int64_t a = 1; a <= most[0]; ++a) {
      for (int64_t b = a + 1; b <= a + 3; ++b) {
        for (int64_t c = b + 1; c <= std::min(a + 4, kLayers - 1); ++c) {
          if (kLayers - c <= most[2]) best = std::min(best, SecondsOf(load, {{0, a}, {a, b}, {b, c}, {c, kLayers}}));
        }
      }
    }
    const std::vector<LayerRange> split = BestSplit(load, hosts, fits, {{0, 2}, {2, 4}, {4, 6}, {6, kLayers}});
    for (size_t s = 0; s < 4; ++s) EXPECT_EQ(split[s].begin, s == 0 ? 0 : split[s - 1].end);
    EXPECT_TRUE(fits(0, 0, split[0].end) && fits(1, split[1].begin, split[2].end) && fits(2, split[3].begin, kLayers));
    EXPECT_NEAR(SecondsOf(load, split), best, 1e-9 * best) << round;
  }
}

TEST(SplitChoice, OfSplitsThatTakeAsLongTheMostEvenOneIsChosen) {
  auto sums = std::make_shared<SplitSums>();
  sums->before.assign(3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const SplitTerm behind_a_slow_link = {.sums = sums, .floor = 100};
  const SplitLoad load = {.prompts = {behind_a_slow_link}, .decode = {behind_a_slow_link}};
  const std::vector<HostMemory> hosts = {{"a", 0, 1, 0}, {"b", 1, 2, 0}, {"c", 2, 3, 0}};
  const HostFits fits = [](size_t host, int64_t begin, int64_t end) { return host != 1 || end - begin <= 2; };
  const std::vector<LayerRange> split = BestSplit(load, hosts, fits, {{0, 1}, {1, 2}, {2, kLayers}});
  EXPECT_EQ(split[1].end - split[1].begin, 2);
  EXPECT_NEAR(static_cast<double>(split[0].end), 3.5, 0.5);
}

}  // namespace
}  // namespace stagecoach
