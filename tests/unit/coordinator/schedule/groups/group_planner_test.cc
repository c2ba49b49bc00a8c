// How many groups decoding sequences go round in.

#include "coordinator/schedule/groups/group_planner.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/groups/made_up_pipeline.h"

namespace stagecoach {
namespace {

// Decodes `rounds` tokens of each of n sequences, in groups as the planner says, or always as many as `fixed`.
// Microseconds a round.
double Decode(MadeUpPipeline* pipeline, int64_t n, int rounds, GroupPlanner* planner, int32_t fixed = 0,
              std::map<int32_t, int>* used = nullptr) {
  const double begin_us = pipeline->now_us();
  int64_t ready = n, left = n * rounds;
  int32_t groups = fixed > 0 ? fixed : planner->Groups(n);
  while (left > 0) {
    while (static_cast<int32_t>(pipeline->in_flight()) < groups && ready > 0) {
      const int64_t free = groups - static_cast<int32_t>(pipeline->in_flight());
      const int64_t rows = std::min((n + groups - 1) / groups, (ready + free - 1) / free);
      pipeline->Submit(rows);
      ready -= rows;
    }
    const MadeUpPipeline::InFlight back = pipeline->Return();
    ready += back.rows;
    left -= back.rows;
    if (planner != nullptr) {
      planner->Confirmed({.decode_rows = back.rows,
                          .prefill_rows = 0,
                          .in_flight = back.in_flight,
                          .round_trip_us = static_cast<int64_t>(back.result_us - back.submit_us),
                          .times = back.times});
      if (fixed == 0) groups = planner->Groups(n);
    }
    if (used != nullptr) ++(*used)[groups];
  }
  while (pipeline->in_flight() > 0) pipeline->Return();
  return (pipeline->now_us() - begin_us) / rounds;
}

struct Outcome {
  double planned_us = 0;  // a round, once settled
  double best_us = 0;     // of the best number of groups
  double stages_us = 0;   // of a group for each stage, or for each sequence if these are fewer
  int32_t best = 0;
};

Outcome Compare(const std::vector<MadeUpStage>& stages, double hop_us, double contention, int64_t n, double noise = 0,
                ReadCurve reads = {}) {
  Outcome outcome;
  const auto most = static_cast<int32_t>(stages.size()) + 1;
  for (int32_t groups = 1; groups <= std::min<int64_t>(most, n); ++groups) {
    MadeUpPipeline pipeline(stages, hop_us, contention, noise, reads);
    const double round_us = Decode(&pipeline, n, 100, nullptr, groups);
    if (outcome.best == 0 || round_us < outcome.best_us) {
      outcome.best_us = round_us;
      outcome.best = groups;
    }
    if (groups <= static_cast<int32_t>(stages.size())) outcome.stages_us = round_us;
  }
  MadeUpPipeline pipeline(stages, hop_us, contention, noise, reads);
  GroupPlanner planner(pipeline.hosts(), most, reads);
  Decode(&pipeline, n, 150, &planner);
  outcome.planned_us = Decode(&pipeline, n, 500, &planner);
  return outcome;
}

TEST(GroupPlanner, KeepsAGroupForEveryStageBeforeItKnowsAnything) {
  GroupPlanner planner({0, 1, 2}, 4);
  EXPECT_EQ(planner.Groups(12), 3);
  EXPECT_EQ(planner.Groups(2), 2);
  EXPECT_EQ(planner.Groups(0), 1);
  EXPECT_FALSE(planner.RoundUs(12, 3).has_value());
  EXPECT_EQ(GroupPlanner({0, 1, 2}, 2).Groups(12), 2);
}

TEST(GroupPlanner, TakesOneGroupWhereTwoStagesReadTheSameMemoryInEachOthersWay) {
  // A second group makes both read their weights twice, each 1.8 times as long.
  const std::vector<MadeUpStage> stages = {{4000, 30, 0}, {4400, 30, 0}};
  const Outcome outcome = Compare(stages, 100, 0.8, 8);
  EXPECT_EQ(outcome.best, 1);
  EXPECT_LT(outcome.planned_us, outcome.best_us * 1.03);
  EXPECT_LT(outcome.planned_us, outcome.stages_us * 0.7);
}

TEST(GroupPlanner, NeverTriesFewerGroupsWhereEqualStagesHaveAHostEach) {
  for (const double fixed : {100.0, 4000.0}) {
    for (const int64_t n : {8, 32}) {
      MadeUpPipeline pipeline({{fixed, 100, 0}, {fixed, 100, 1}, {fixed, 100, 2}}, 20, 0, 0.04);
      GroupPlanner planner(pipeline.hosts(), 4);
      std::map<int32_t, int> used;
      Decode(&pipeline, n, 500, &planner, 0, &used);
      EXPECT_EQ(used.begin()->first, 3) << fixed << " " << n;
    }
  }
}

TEST(GroupPlanner, IsNeverBelowAGroupForEachStageWhereTheseHaveAHostEach) {
  for (const std::vector<double>& speeds : {std::vector<double>{1, 1}, {1, 1.5}, {1, 1, 1, 1}, {1, 3, 1, 1}}) {
    for (const double fixed : {50.0, 1000.0, 5000.0}) {
      for (const double row : {5.0, 100.0, 800.0}) {
        for (const int64_t n : {1, 3, 8, 32}) {
          std::vector<MadeUpStage> stages;
          for (const double speed : speeds)
            stages.push_back({fixed * speed, row * speed, static_cast<int>(stages.size())});
          const Outcome outcome = Compare(stages, 50, 0, n);
          EXPECT_LT(outcome.planned_us, outcome.stages_us * 1.02)
              << speeds.size() << " stages of " << fixed << " + " << row << " a row, " << n << " sequences";
        }
      }
    }
  }
}

TEST(GroupPlanner, SettlesWithinATenthOfTheBestNumberOfGroups) {
  for (const double contention : {0.0, 0.4, 0.8}) {
    for (const double fixed : {50.0, 1000.0, 5000.0}) {
      for (const double row : {5.0, 100.0, 800.0}) {
        for (const int64_t n : {2, 8, 32}) {
          for (const double hop : {50.0, 700.0}) {
            const std::vector<std::vector<MadeUpStage>> pipelines = {
                {{fixed, row, 0}, {fixed * 1.2, row * 1.2, 0}},
                {{fixed, row, 0}, {fixed, row, 0}, {fixed * 1.3, row * 1.3, 1}}};
            for (const std::vector<MadeUpStage>& stages : pipelines) {
              const Outcome outcome = Compare(stages, hop, contention, n, 0.02);
              EXPECT_LT(outcome.planned_us, outcome.best_us / 0.9)
                  << stages.size() << " stages of " << fixed << " + " << row << " a row, contention " << contention
                  << ", hop " << hop << ", " << n << " sequences; best " << outcome.best;
            }
          }
        }
      }
    }
  }
}

// 8 of 128 experts a row, and as many weights around them as a model of 30 billion has.
constexpr ReadCurve kExperts = {.experts = 0.93, .chosen = 8.0 / 128};

TEST(ReadCurve, IsThatOfTheExpertsThatSomeRowChooses) {
  EXPECT_DOUBLE_EQ(ReadCurve{}.Of(1), 1);
  EXPECT_DOUBLE_EQ(ReadCurve{}.Of(100), 1);
  EXPECT_DOUBLE_EQ(ReadCurve{}.Slope(4), 0);
  const ReadCurve all = {.experts = 1, .chosen = 8.0 / 128};
  EXPECT_DOUBLE_EQ(all.Of(1), 1);
  EXPECT_NEAR(all.Of(16), 10.3, 0.05);
  EXPECT_NEAR(all.Of(1000), 16, 1e-3);
  EXPECT_NEAR(all.Slope(4), all.Of(4.5) - all.Of(3.5), 1e-3);
}

TEST(GroupPlanner, KnowsWhatOtherGroupsOfExpertsWouldRead) {
  // Four stages with a host each: of 16 rows in one group a stage reads 2.8 times what it reads for 4, not as much.
  MadeUpPipeline pipeline({{1000, 1, 0}, {1000, 1, 1}, {1000, 1, 2}, {1000, 1, 3}}, 10, 0, 0.02, kExperts);
  GroupPlanner planner(pipeline.hosts(), 4, kExperts);
  std::map<int32_t, int> used;
  Decode(&pipeline, 16, 100, &planner, 0, &used);
  EXPECT_EQ(used.size(), 1u) << "and no other number is worth a trial";
  MadeUpPipeline whole({{1000, 1, 0}, {1000, 1, 1}, {1000, 1, 2}, {1000, 1, 3}}, 10, 0, 0, kExperts);
  const double one_us = Decode(&whole, 16, 100, nullptr, 1);
  EXPECT_GT(one_us, 2 * *planner.RoundUs(16, 4));
  EXPECT_NEAR(*planner.RoundUs(16, 1) / one_us, 1, 0.05);
}

TEST(GroupPlanner, TakesOneGroupWhereTwoStagesReadExpertsInEachOthersWay) {
  // In two groups each stage reads 8 rows' experts twice a round, at half the speed; in one 16 rows' once.
  const std::vector<MadeUpStage> stages = {{400, 3, 0}, {440, 3, 0}};
  const Outcome outcome = Compare(stages, 50, 1, 16, 0.02, kExperts);
  EXPECT_EQ(outcome.best, 1);
  EXPECT_LT(outcome.planned_us, outcome.best_us * 1.03);
  EXPECT_LT(outcome.planned_us, outcome.stages_us * 0.9);
}

TEST(GroupPlanner, SettlesWithinATenthOfTheBestNumberOfGroupsOfExpertsToo) {
  for (const double contention : {0.0, 0.5, 1.0}) {
    for (const double fixed : {50.0, 400.0}) {
      for (const double row : {3.0, 100.0}) {
        for (const int64_t n : {2, 8, 32}) {
          const std::vector<std::vector<MadeUpStage>> pipelines = {
              {{fixed, row, 0}, {fixed * 1.2, row * 1.2, 0}},
              {{fixed, row, 0}, {fixed, row, 1}, {fixed, row, 2}, {fixed, row, 3}},
              {{fixed, row, 0}, {fixed, row, 0}, {fixed * 1.3, row * 1.3, 1}}};
          for (const std::vector<MadeUpStage>& stages : pipelines) {
            const Outcome outcome = Compare(stages, 200, contention, n, 0.02, kExperts);
            EXPECT_LT(outcome.planned_us, outcome.best_us / 0.9)
                << stages.size() << " stages of " << fixed << " + " << row << " a row, contention " << contention
                << ", " << n << " sequences; best " << outcome.best;
          }
        }
      }
    }
  }
}

TEST(GroupPlanner, TakesMoreGroupsThanStagesWhereTheWayBackIsLongAndRowsCost) {
  const Outcome outcome = Compare({{100, 100, 0}, {100, 100, 1}}, 800, 0, 24);
  EXPECT_EQ(outcome.best, 3);
  EXPECT_LT(outcome.planned_us, outcome.best_us * 1.03);
  // A pipeline whose steps do not get shorter with fewer rows only reads its weights once more.
  EXPECT_EQ(Compare({{4000, 5, 0}, {4000, 5, 1}}, 300, 0, 24).best, 2);
}

TEST(GroupPlanner, TrialsThatChangeNothingBecomeRare) {
  MadeUpPipeline pipeline({{100, 400, 0}, {100, 400, 0}}, 50, 0.1);
  GroupPlanner planner(pipeline.hosts(), 3);
  std::map<int32_t, int> used;
  Decode(&pipeline, 8, 10000, &planner, 0, &used);
  EXPECT_GT(used[1] + used[3], 0);
  EXPECT_LT(used[1] + used[3], 200);  // of 20,000 results
}

TEST(GroupPlanner, FollowsAHostThatChanges) {
  MadeUpPipeline pipeline({{4000, 30, 0}, {4000, 30, 0}}, 100, 0.8);
  GroupPlanner planner(pipeline.hosts(), 3);
  Decode(&pipeline, 8, 200, &planner);
  EXPECT_EQ(planner.Groups(8), 1);
  pipeline.SlowDown(1.6);  // longer contexts, another load
  Decode(&pipeline, 8, 400, &planner);
  EXPECT_EQ(planner.Groups(8), 1);
  // Many sequences: rows cost more than reading.
  Decode(&pipeline, 1000, 400, &planner);
  EXPECT_GE(planner.Groups(1000), 2);
  Decode(&pipeline, 8, 400, &planner);
  EXPECT_EQ(planner.Groups(8), 1);
}

// Two one-thread stages of a Qwen3-0.6B in Q8_0 on one host of two cores, in the proportions that fixed numbers of
// groups were measured with: 8 sequences 0.57, 0.54 and 0.41 of what one stage with both cores does, 32 sequences 0.59,
// 0.88 and 0.67.
MadeUpPipeline TwoStagesOfOneHost(double noise = 0) {
  return MadeUpPipeline({{2600, 976, 0}, {2600, 976, 0}}, 100, 1.72, noise);
}

TEST(GroupPlanner, KnowsFromFewSequencesWhatNotToTryWithMany) {
  for (const double noise : {0.0, 0.1}) {
    MadeUpPipeline pipeline = TwoStagesOfOneHost(noise);
    GroupPlanner planner(pipeline.hosts(), 3);
    Decode(&pipeline, 8, 36, &planner);
    Decode(&pipeline, 32, 4, &planner);
    std::map<int32_t, int> used;
    const double round_us = Decode(&pipeline, 32, 32, &planner, 0, &used);
    EXPECT_THAT(used, ElementsAre(Pair(2, 64))) << "rows alone make one group too slow, and noise is " << noise;
    MadeUpPipeline fixed = TwoStagesOfOneHost(noise);
    EXPECT_LT(round_us, Decode(&fixed, 32, 32, nullptr, 2) * 1.02);
  }
}

TEST(GroupPlanner, EndsATrialThatCannotWinAfterTwoResults) {
  for (const double noise : {0.0, 0.1}) {
    MadeUpPipeline pipeline = TwoStagesOfOneHost(noise);
    GroupPlanner planner(pipeline.hosts(), 2);
    std::map<int32_t, int> used;
    Decode(&pipeline, 32, 200, &planner, 0, &used);  // whose number never changes
    EXPECT_GE(used[1], 1) << "rows could be free";
    EXPECT_LE(used[1], GroupPlanner::kTrialLeast + 2) << "with those that were under way, noise is " << noise;
  }
}

TEST(GroupPlanner, DoesNotTakeStepsBoundByTheirRowsThroughOneGroup) {
  for (const int64_t n : {16, 32, 64}) {
    MadeUpPipeline pipeline({{9000, 976, 0, true}, {9000, 976, 0, true}}, 100, 0.9, 0.05);
    GroupPlanner planner(pipeline.hosts(), 3);
    for (const int64_t fewer : {4, 8, 12}) Decode(&pipeline, fewer, 40, &planner);
    Decode(&pipeline, n, 40, &planner);
    MadeUpPipeline fixed({{9000, 976, 0, true}, {9000, 976, 0, true}}, 100, 0.9, 0.05);
    const double best_us = std::min(
        {Decode(&fixed, n, 40, nullptr, 1), Decode(&fixed, n, 40, nullptr, 2), Decode(&fixed, n, 40, nullptr, 3)});
    EXPECT_LT(Decode(&pipeline, n, 40, &planner), best_us * 1.05) << n;
  }
}

TEST(GroupPlanner, LoadsThatComeAndGoBringNoTrialEachTime) {
  MadeUpPipeline pipeline = TwoStagesOfOneHost(0.05);
  GroupPlanner planner(pipeline.hosts(), 3);
  std::map<int32_t, int> used;
  for (int change = 0; change < 100; ++change) {
    for (const int64_t n : {32, 20, 12, 20}) Decode(&pipeline, n, 6, &planner, 0, change < 5 ? nullptr : &used);
  }
  EXPECT_LT(used[1] + used[3], (used[1] + used[2] + used[3]) / 20);
}

TEST(GroupPlanner, ATrialEndsThoughPromptsKeepComing) {
  MadeUpPipeline pipeline({{4000, 30, 0}, {4400, 30, 0}}, 100, 0.8);
  GroupPlanner planner(pipeline.hosts(), 2);
  const std::vector<StageTimes> times(2, {.start_us = 0, .end_us = 1000});
  // Up to where it tries one group.
  while (planner.Groups(8) == 2) Decode(&pipeline, 8, 1, &planner);
  int beside_prompts = 0;
  for (; planner.Groups(8) == 1; ++beside_prompts) {
    planner.Confirmed({8, 100, 2, 1010, times});
    ASSERT_LT(beside_prompts, 100);
  }
  EXPECT_GT(beside_prompts, 0);
}

TEST(GroupPlanner, BelievesNoStageThatSaysItComputedForLongerThanThereWas) {
  GroupPlanner planner({0, 0, 0}, 3);
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::vector<StageTimes> times(3, {.received_us = 0, .start_us = 0, .end_us = most});
  for (int i = 0; i < 100; ++i) {
    planner.Confirmed({4, 0, 3, 1000, times});
    planner.Groups(12);
  }
  EXPECT_LE(*planner.RoundUs(12, 3), 3 * 1000 + 1);
}

// Looks are rare where there are many stages, and there is a bound to the numbers that each of them is about.
TEST(GroupPlanner, VisitsAStageNoOftenerForAResultWhereThereAreManyGroups) {
  for (const int32_t stages : {8, 64, 512}) {
    GroupPlanner planner(std::vector<int>(static_cast<size_t>(stages), 0), stages + 1);
    const std::vector<StageTimes> times(static_cast<size_t>(stages), {.received_us = 0, .start_us = 0, .end_us = 1000});
    const auto confirm = [&](int results, int32_t in_flight) {
      for (int i = 0; i < results; ++i) {
        planner.Confirmed({2, 0, in_flight, 1000 * stages + 200, times});
        planner.Groups(2 * stages);
      }
    };
    for (int32_t in_flight = 1; in_flight <= stages; ++in_flight) confirm(20, in_flight);  // all become known
    const uint64_t before = planner.visits();
    confirm(20 * stages, stages);
    EXPECT_LT(static_cast<double>(planner.visits() - before) / (20.0 * stages), 25.0 * stages) << stages;
  }
}

TEST(GroupPlanner, DecidesTheSameForTheSameResults) {
  std::vector<std::map<int32_t, int>> used(2);
  for (std::map<int32_t, int>& one : used) {
    MadeUpPipeline pipeline({{1000, 100, 0}, {1500, 100, 0}, {1000, 100, 1}}, 100, 0.5, 0.2);
    GroupPlanner planner(pipeline.hosts(), 4);
    for (const int64_t n : {3, 9, 30}) Decode(&pipeline, n, 200, &planner, 0, &one);
  }
  EXPECT_EQ(used[0], used[1]);
}

TEST(GroupPlanner, MixedMicroBatchesAndPipelinesWithoutTimesTeachNothing) {
  GroupPlanner planner({0, 1}, 2);
  const std::vector<StageTimes> times = {{.stage = 0, .start_us = 0, .end_us = 1000},
                                         {.stage = 1, .start_us = 0, .end_us = 9}};
  for (int i = 0; i < 200; ++i) planner.Confirmed({4, 100, 2, 1010, times});
  for (int i = 0; i < 200; ++i) planner.Confirmed({4, 0, 2, 1010, {}});
  EXPECT_FALSE(planner.RoundUs(8, 2).has_value());
  EXPECT_EQ(planner.Groups(8), 2);
}

}  // namespace
}  // namespace stagecoach
