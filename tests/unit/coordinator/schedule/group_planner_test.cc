#include "coordinator/schedule/group_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stagecoach {
namespace {

// A pipeline that costs time by the planner's own model, for which it hands out steps as an engine would: `groups`
// micro-batches go round, each stage works on one at a time.
class MadeUpPipeline {
 public:
  struct Stage {
    double a, g, b;
    int host;
  };
  MadeUpPipeline(std::vector<Stage> stages, double hop_us) : stages_(std::move(stages)), hop_us_(hop_us) {}

  std::vector<int> hosts() const {
    std::vector<int> hosts;
    for (const Stage& stage : stages_) hosts.push_back(stage.host);
    return hosts;
  }

  double RoundUs(int64_t rows, int groups) const {
    double slowest = 0, all = hop_us_;
    for (size_t s = 0; s < stages_.size(); ++s) {
      slowest = std::max(slowest, StepUs(s, (rows + groups - 1) / groups, groups));
      all += StepUs(s, (rows + groups - 1) / groups, groups);
    }
    return std::max(slowest * groups, all);
  }

  int BestGroups(int64_t rows, int most) const {
    int best = 1;
    for (int groups = 2; groups <= std::min<int64_t>(most, rows); ++groups) {
      if (RoundUs(rows, groups) < RoundUs(rows, best)) best = groups;
    }
    return best;
  }

  // One round of all groups, told to the planner result by result.
  void RunRound(int64_t rows, int groups, GroupPlanner* planner) {
    const int64_t round_us = static_cast<int64_t>(RoundUs(rows, groups));
    for (int group = 0; group < groups; ++group) {
      const int64_t size = rows / groups + (group < rows % groups ? 1 : 0);
      std::vector<StageTimes> times;
      double begin = static_cast<double>(now_us_ + round_us * group / groups);
      for (size_t s = 0; s < stages_.size(); ++s) {
        const double step = StepUs(s, size, groups);
        times.push_back({.stage = static_cast<int32_t>(s),
                         .start_us = static_cast<int64_t>(begin),
                         .end_us = static_cast<int64_t>(begin + step)});
        begin += step;
      }
      planner->Confirmed(size, 0, times, static_cast<int64_t>(hop_us_));
    }
    now_us_ += round_us;
  }

 private:
  double StepUs(size_t s, int64_t rows, int groups) const {
    const Stage& stage = stages_[s];
    const auto beside =
        std::count_if(stages_.begin(), stages_.end(), [&](const Stage& o) { return o.host == stage.host; });
    const double busy =
        stages_.size() > 1 ? std::min(1.0, (groups - 1.0) / (static_cast<double>(stages_.size()) - 1)) : 0;
    return stage.a + stage.g * static_cast<double>(beside - 1) * busy + stage.b * static_cast<double>(rows);
  }

  const std::vector<Stage> stages_;
  const double hop_us_;
  int64_t now_us_ = 1000;
};

// What the planner settles on when sequences come one after another and then stay.
int Settled(MadeUpPipeline* pipeline, int64_t sequences, int most) {
  GroupPlanner planner(pipeline->hosts(), most);
  int groups = 1;
  for (int64_t n = 1; n <= sequences; ++n) {
    groups = planner.Groups(n);
    for (int round = 0; round < 8; ++round) pipeline->RunRound(n, groups, &planner);
  }
  for (int round = 0; round < 400; ++round) {
    groups = planner.Groups(sequences);
    pipeline->RunRound(sequences, groups, &planner);
  }
  return groups;
}

TEST(GroupPlanner, KeepsAGroupForEveryStageBeforeItKnowsAnything) {
  GroupPlanner planner({0, 1, 2}, 3);
  EXPECT_EQ(planner.Groups(12), 3);
  EXPECT_EQ(planner.Groups(2), 2);
  EXPECT_EQ(planner.Groups(0), 1);
  EXPECT_FALSE(planner.RoundUs(12, 3).has_value());
}

TEST(GroupPlanner, CutsWhereRowsCostTimeAndDoesNotWhereReadingDoes) {
  MadeUpPipeline computing({{100, 0, 400, 0}, {100, 0, 400, 1}}, 50);
  EXPECT_EQ(computing.BestGroups(8, 2), 2);
  EXPECT_EQ(Settled(&computing, 8, 2), 2);
  // Two stages that read one memory: a second group makes each read it twice, and in each other's way.
  MadeUpPipeline reading({{4000, 3500, 20, 0}, {4000, 3500, 20, 0}}, 50);
  EXPECT_EQ(reading.BestGroups(8, 2), 1);
  EXPECT_EQ(Settled(&reading, 8, 2), 1);
  // The same stages with a host each.
  MadeUpPipeline apart({{4000, 0, 20, 0}, {4000, 0, 20, 1}}, 50);
  EXPECT_EQ(Settled(&apart, 8, 2), apart.BestGroups(8, 2));
}

TEST(GroupPlanner, NeverSettlesMuchBelowTheBestOfTheModel) {
  for (const double a : {50.0, 1000.0, 5000.0}) {
    for (const double g : {0.0, 0.5, 1.0}) {
      for (const double b : {5.0, 100.0, 800.0}) {
        for (const int64_t sequences : {1, 3, 8, 32}) {
          MadeUpPipeline pipeline({{a, a * g, b, 0}, {a, a * g, b, 0}, {a * 1.3, 0, b * 1.3, 1}}, 200);
          const int settled = Settled(&pipeline, sequences, 3);
          EXPECT_LE(pipeline.RoundUs(sequences, settled),
                    pipeline.RoundUs(sequences, pipeline.BestGroups(sequences, 3)) * 1.12)
              << a << " " << g << " " << b << " " << sequences << ": " << settled;
        }
      }
    }
  }
}

TEST(GroupPlanner, MixedMicroBatchesTeachNothing) {
  GroupPlanner planner({0, 1}, 2);
  std::vector<StageTimes> times = {{.stage = 0, .start_us = 0, .end_us = 1000},
                                   {.stage = 1, .start_us = 0, .end_us = 9}};
  for (int i = 0; i < 200; ++i) planner.Confirmed(4, 100, times, 10);
  EXPECT_FALSE(planner.RoundUs(8, 2).has_value());
}

}  // namespace
}  // namespace stagecoach
