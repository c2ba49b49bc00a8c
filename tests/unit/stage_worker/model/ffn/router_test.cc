#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "stage_worker/model/ffn/ffn.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routed RouteRow(const RouterSpec& spec, int64_t used, const std::vector<float>& logits,
                const std::vector<float>& bias = {}) {
  const auto experts = static_cast<int64_t>(logits.size());
  std::vector<float> work(static_cast<size_t>(4 * experts));
  Routed routed{std::vector<int32_t>(static_cast<size_t>(used), -7), std::vector<float>(static_cast<size_t>(used))};
  Route(spec, experts, used, logits.data(), bias.empty() ? nullptr : bias.data(), work.data(), routed.experts.data(),
        routed.weights.data());
  return routed;
}

struct Expected {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};

// The rules as they are written down, in double and by sorting.
Expected RouteInDouble(const RouterSpec& spec, int64_t used, const std::vector<float>& logits,
                       const std::vector<float>& bias) {
  const size_t experts = logits.size();
  std::vector<double> p(experts), scores(experts);
  const double max = *std::max_element(logits.begin(), logits.end());
  double all = 0;
  for (const float logit : logits) all += std::exp(logit - max);
  for (size_t e = 0; e < experts; ++e) {
    if (spec.gating == Gating::kSoftmax) p[e] = std::exp(logits[e] - max) / all;
    if (spec.gating == Gating::kSigmoid) p[e] = 1 / (1 + std::exp(-static_cast<double>(logits[e])));
    if (spec.gating == Gating::kSoftmaxOfChosen) p[e] = logits[e];
    scores[e] = p[e] + (bias.empty() ? 0.0 : static_cast<double>(bias[e]));
  }
  const size_t size = experts / static_cast<size_t>(spec.groups);
  std::vector<std::pair<double, size_t>> groups;
  for (size_t g = 0; g * size < experts; ++g) {
    std::vector<double> of_group(scores.begin() + static_cast<int64_t>(g * size),
                                 scores.begin() + static_cast<int64_t>((g + 1) * size));
    std::sort(of_group.rbegin(), of_group.rend());
    groups.push_back({-(of_group[0] + (size > 1 ? of_group[1] : 0)), g});
  }
  std::sort(groups.begin(), groups.end());
  groups.resize(static_cast<size_t>(spec.groups_used));
  std::vector<std::pair<double, int32_t>> candidates;
  for (const auto& [score, g] : groups) {
    for (size_t e = g * size; e < (g + 1) * size; ++e) candidates.push_back({-scores[e], static_cast<int32_t>(e)});
  }
  std::sort(candidates.begin(), candidates.end());
  Expected expected;
  double sum = 0, chosen_sum = 0;
  for (int64_t i = 0; i < used; ++i) {
    const int32_t e = candidates[static_cast<size_t>(i)].second;
    expected.experts.push_back(e);
    const double weight = p[static_cast<size_t>(e)];
    expected.weights.push_back(spec.gating == Gating::kSoftmaxOfChosen ? std::exp(weight - max) : weight);
    chosen_sum += expected.weights.back();
  }
  for (double& weight : expected.weights) {
    if (spec.gating == Gating::kSoftmaxOfChosen) weight /= chosen_sum;
    sum += weight;
  }
  for (double& weight : expected.weights) {
    if (spec.normalized) weight /= std::max(sum, 6.103515625e-5);
    weight *= spec.scale;
  }
  return expected;
}

TEST(Route, AgreesWithTheRulesInDouble) {
  struct Case {
    int64_t experts, used, groups, groups_used;
  };
  const Case cases[] = {{5, 1, 1, 1},   {16, 4, 1, 1}, {16, 16, 1, 1}, {128, 8, 1, 1},
                        {256, 8, 8, 4}, {12, 2, 6, 1}, {8, 8, 4, 4},   {6, 3, 6, 4}};
  uint64_t seed = 1;
  for (const Case& c : cases) {
    for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
      for (const bool biased : {false, true}) {
        for (const bool normalized : {false, true}) {
          const RouterSpec spec{.gating = gating,
                                .normalized = normalized,
                                .scale = normalized ? 2.5 : 1,
                                .groups = c.groups,
                                .groups_used = c.groups_used};
          ++seed;
          std::vector<float> logits(static_cast<size_t>(c.experts)), bias;
          for (size_t e = 0; e < logits.size(); ++e) logits[e] = static_cast<float>(8 * UniformAt(seed, e) - 4);
          if (biased) {
            for (size_t e = 0; e < logits.size(); ++e) {
              bias.push_back(static_cast<float>(UniformAt(seed, 1000 + e) - 0.5));
            }
          }
          const Routed routed = RouteRow(spec, c.used, logits, bias);
          const Expected expected = RouteInDouble(spec, c.used, logits, bias);
          const std::string what = absl::StrCat(c.experts, " choose ", c.used, ", ", c.groups, " groups, gating ",
                                                static_cast<int>(gating), biased ? ", biased" : "");
          EXPECT_EQ(routed.experts, expected.experts) << what;
          for (size_t i = 0; i < expected.weights.size(); ++i) {
            EXPECT_NEAR(routed.weights[i], expected.weights[i], 1e-5 * std::abs(expected.weights[i])) << what;
          }
        }
      }
    }
  }
}

TEST(Route, GivesTiesToTheLowerExpert) {
  RouterSpec spec;
  EXPECT_THAT(RouteRow(spec, 3, {1, 2, 1, 2, 2, 1}).experts, ElementsAre(1, 3, 4));
  EXPECT_THAT(RouteRow(spec, 4, {1, 2, 1, 2, 2, 1}).experts, ElementsAre(1, 3, 4, 0));
  EXPECT_THAT(RouteRow(spec, 6, {0, 0, 0, 0, 0, 0}).experts, ElementsAre(0, 1, 2, 3, 4, 5));
  // So large that every sigmoid is 1.
  spec.gating = Gating::kSigmoid;
  EXPECT_THAT(RouteRow(spec, 2, {10, 50, 60, 70}).experts, ElementsAre(1, 2));
  spec.groups = 3;
  spec.groups_used = 2;
  EXPECT_THAT(RouteRow(spec, 2, {0, 0, 0, 0, 0, 0}).experts, ElementsAre(0, 1));
  EXPECT_THAT(RouteRow(spec, 4, {0, 0, 0, 0, 0, 0}).experts, ElementsAre(0, 1, 2, 3));
}

TEST(Route, JudgesAGroupByItsTwoBest) {
  RouterSpec spec{.gating = Gating::kSoftmaxOfChosen, .normalized = false, .groups = 2, .groups_used = 1};
  // The best expert of all is in the group whose second is bad.
  EXPECT_THAT(RouteRow(spec, 2, {9, -9, -9, 3, 3, -9}).experts, ElementsAre(3, 4));
  EXPECT_THAT(RouteRow(spec, 3, {9, -9, -9, 3, 3, -9}).experts, ElementsAre(3, 4, 5));
}

TEST(Route, ChoosesByTheBiasAndWeighsWithoutIt) {
  RouterSpec spec{.gating = Gating::kSigmoid, .normalized = false};
  const Routed plain = RouteRow(spec, 1, {0, 1, 2});
  const Routed biased = RouteRow(spec, 1, {0, 1, 2}, {1, 0, 0});
  EXPECT_THAT(plain.experts, ElementsAre(2));
  EXPECT_THAT(biased.experts, ElementsAre(0));
  EXPECT_EQ(biased.weights[0], 0.5f);
}

TEST(Route, DividesByASmallSumNoFurtherThanItsLeast) {
  RouterSpec spec{.gating = Gating::kSigmoid, .normalized = true};
  const Routed routed = RouteRow(spec, 1, {-30, -40});
  EXPECT_THAT(routed.experts, ElementsAre(0));
  EXPECT_NEAR(routed.weights[0], std::exp(-30.0) * 16384, 1e-12);
}

// Whatever a broken file makes of the logits: as many different experts as asked for, always the same ones.
TEST(Route, ChoosesDifferentExpertsWhateverTheLogitsAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {nan, infinity, -infinity, 3e38f, -3e38f, 0.0f, -0.0f, -nan, 1e-45f};
  uint64_t seed = 0;
  for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
    for (const int64_t groups : {1, 4}) {
      for (int round = 0; round < 200; ++round) {
        RouterSpec spec{.gating = gating, .groups = groups, .groups_used = groups == 1 ? 1 : 2};
        std::vector<float> logits(16), bias(16);
        for (size_t e = 0; e < 16; ++e) {
          logits[e] = odd[static_cast<size_t>(UniformAt(++seed, 0) * 9)];
          bias[e] = odd[static_cast<size_t>(UniformAt(seed, 1) * 9)];
        }
        for (const std::vector<float>& b : {std::vector<float>(), bias}) {
          const Routed routed = RouteRow(spec, 8, logits, b);
          EXPECT_EQ(std::set<int32_t>(routed.experts.begin(), routed.experts.end()).size(), 8u);
          EXPECT_THAT(routed.experts, ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(16))));
          EXPECT_EQ(RouteRow(spec, 8, logits, b).experts, routed.experts);
        }
      }
    }
  }
  const RouterSpec by_logit{.gating = Gating::kSoftmaxOfChosen};
  EXPECT_THAT(RouteRow(by_logit, 3, {nan, 1, nan, 2}).experts, ElementsAre(3, 1, 0)) << "what is no number is the last";
  EXPECT_THAT(RouteRow(by_logit, 2, {nan, nan, nan, nan}).experts, ElementsAre(0, 1));
  EXPECT_THAT(RouteRow(by_logit, 2, {0, infinity, -infinity, infinity}).experts, ElementsAre(1, 3));
}

}  // namespace
}  // namespace stagecoach
