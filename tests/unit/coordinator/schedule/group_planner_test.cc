// How decoding sequences are cut into groups, and how the groups keep their sizes.

#include "coordinator/schedule/group_planner.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <queue>

#include "common/base/counter_rng.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {
namespace {

struct MadeUpStage {
  double fixed_us, row_us;
  int host;
  bool roofline = false;  // reading and rows go on at once: a step takes what takes longer, not both
};

// A pipeline that costs time. Groups go round in it as an engine would send them: each stage works on one at a time, a
// hop takes `hop_us`, and a stage is slowed down by those that compute on its host meanwhile, by `contention` of its
// fixed part for each. That part is what one row reads, and more rows as `reads` says. Whatever the planner assumes
// beyond that is put to the test.
class MadeUpPipeline {
 public:
  MadeUpPipeline(std::vector<MadeUpStage> stages, double hop_us, double contention = 0, double noise = 0,
                 ReadCurve reads = {})
      : stages_(std::move(stages)),
        reads_(reads),
        hop_us_(hop_us),
        contention_(contention),
        noise_(noise),
        free_us_(stages_.size()),
        busy_(stages_.size(), {0.0, 0.0}) {}

  std::vector<int> hosts() const {
    std::vector<int> hosts;
    for (const MadeUpStage& stage : stages_) hosts.push_back(stage.host);
    return hosts;
  }
  double now_us() const { return now_us_; }
  void SlowDown(double factor) { factor_ = factor; }

  struct InFlight {
    int64_t rows;
    int32_t in_flight;
    double submit_us, result_us;
    std::vector<StageTimes> times;
  };

  // Sends a group of so many rows in.
  void Submit(int64_t rows) {
    InFlight flight{rows, static_cast<int32_t>(in_flight_.size() + 1), now_us_, 0, {}};
    double at = now_us_ + hop_us_;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const double begin = std::max(at, free_us_[s]);
      const double end = begin + StepUs(s, rows, begin);
      flight.times.push_back({.stage = static_cast<int32_t>(s),
                              .received_us = static_cast<int64_t>(at),
                              .start_us = static_cast<int64_t>(begin),
                              .end_us = static_cast<int64_t>(end)});
      free_us_[s] = end;
      busy_[s] = {begin, end};
      at = end + hop_us_;
    }
    flight.result_us = at;
    in_flight_.push(std::move(flight));
  }

  // Waits for the oldest.
  InFlight Return() {
    InFlight flight = std::move(in_flight_.front());
    flight.in_flight = std::max(flight.in_flight, static_cast<int32_t>(in_flight_.size()));
    in_flight_.pop();
    now_us_ = std::max(now_us_, flight.result_us);
    return flight;
  }
  size_t in_flight() const { return in_flight_.size(); }

 private:
  // Others of the host are looked at when it begins: what they do then, they do for about as long.
  double StepUs(size_t s, int64_t rows, double begin) {
    double beside = 0;
    for (size_t other = 0; other < stages_.size(); ++other) {
      if (other == s || stages_[other].host != stages_[s].host) continue;
      if (busy_[other].second > begin + 1) beside += 1;
    }
    // A stage that is earlier in the pipeline has begun with the next group by then, when there is one.
    for (size_t other = 0; other < s; ++other) {
      if (stages_[other].host == stages_[s].host && busy_[other].second <= begin + 1 && in_flight_.size() > 1)
        beside += 1;
    }
    const double jitter = 1 + noise_ * (UniformAt(7, draws_++) - 0.5);
    const double reading = stages_[s].fixed_us * reads_.Of(static_cast<double>(rows)) * (1 + contention_ * beside);
    const double computing = stages_[s].row_us * static_cast<double>(rows);
    return factor_ * jitter * (stages_[s].roofline ? std::max(reading, computing) : reading + computing);
  }

  const std::vector<MadeUpStage> stages_;
  const ReadCurve reads_;
  const double hop_us_, contention_, noise_;
  std::vector<double> free_us_;
  std::vector<std::pair<double, double>> busy_;  // [stages] the last step
  double now_us_ = 1000;
  double factor_ = 1;
  uint64_t draws_ = 0;
  std::queue<InFlight> in_flight_;
};

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

struct DecodeGroups : ::testing::Test {
  static SchedulerOptions Options() {
    return {{.max_num_seqs = 64,
             .policy = Policy::kInterleaved,
             .max_num_batched_tokens = 512,
             .prefill_chunk = 64,
             .block_tokens = 16,
             .prefix_caching = false},
            {.group_blocks = {1024}, .context = 1024, .micro_batches = 4, .max_open_tokens = 65536}};
  }

  // Adds sequences and computes their prompts, until all decode and nothing is in flight.
  void Decode(int sequences) {
    for (int i = 0; i < sequences; ++i) {
      machine_.Add({.id = next_id_++, .prompt = {1, 2, 3}, .max_new_tokens = 400});
    }
    while (scheduler_.decoding() < static_cast<int64_t>(next_id_) - 1) {
      Fill();
      machine_.Confirm();
    }
    while (!machine_.results.empty()) machine_.Confirm();
  }

  // Takes all there is; the sizes of what was taken.
  std::vector<int> Fill() {
    std::vector<int> sizes;
    while (const std::optional<MicroBatch> batch = machine_.TrySubmit()) sizes.push_back(batch->rows());
    return sizes;
  }
  // Every group that is under way comes back once, and goes out again.
  void Rounds(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (size_t left = machine_.results.size(); left > 0; --left) {
        machine_.Confirm();
        Fill();
      }
    }
  }
  // Of what is in flight.
  std::vector<int> Sizes() const {
    std::vector<int> sizes;
    for (const MicroBatch& batch : machine_.batches) sizes.push_back(batch.rows());
    return sizes;
  }

  explicit DecodeGroups(const SchedulerOptions& options = Options()) : machine_(options) {}
  Machine machine_;
  Scheduler& scheduler_ = machine_.scheduler;
  SequenceId next_id_ = 1;
};

class MoreDecodeGroups : public DecodeGroups {
 protected:
  static SchedulerOptions MoreGroups() {
    SchedulerOptions options = Options();
    options.micro_batches = 2;
    options.most_groups = 3;
    return options;
  }
  MoreDecodeGroups() : DecodeGroups(MoreGroups()) {}
};

TEST_F(DecodeGroups, AreOfEqualSizeOrOneApart) {
  Decode(11);
  EXPECT_THAT(Fill(), ElementsAre(3, 3, 3, 2));
  Rounds(5);
  EXPECT_THAT(Sizes(), UnorderedElementsAre(3, 3, 3, 2));
}

TEST_F(DecodeGroups, FewerThanMicroBatchesLeaveTheRestOfThemForPrompts) {
  Decode(8);
  scheduler_.SetDecodeGroups(2);
  EXPECT_THAT(Fill(), ElementsAre(4, 4));
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Add({.id = 100, .prompt = std::vector<TokenId>(50, 1), .max_new_tokens = 4});
  EXPECT_THAT(Fill(), ElementsAre(50));
}

TEST_F(MoreDecodeGroups, ThanMicroBatchesHaveAsManyInFlightWhileThereAreSoMany) {
  EXPECT_EQ(scheduler_.decode_groups(), 2);
  for (SequenceId id = 1; id <= 6; ++id) {
    machine_.Add({.id = id, .prompt = std::vector<TokenId>(64, 1), .max_new_tokens = 400});
  }
  Fill();
  while (scheduler_.decoding() < 6) Rounds(1);
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 2u);
  scheduler_.SetDecodeGroups(3);
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 3u);
  for (const StepResult& result : machine_.results) EXPECT_EQ(result.sampled.size(), 2u);
  scheduler_.SetDecodeGroups(2);  // with three in flight
  Rounds(3);
  EXPECT_EQ(machine_.results.size(), 2u);
}

TEST_F(DecodeGroups, AreCutAnewAsTheyComeBackWhenTheirNumberChanges) {
  Decode(8);
  Fill();
  EXPECT_THAT(Sizes(), ElementsAre(2, 2, 2, 2));
  scheduler_.SetDecodeGroups(1);
  // What comes back waits until all have, for there must be one group only.
  machine_.Confirm();
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Confirm();
  machine_.Confirm();
  EXPECT_THAT(Fill(), IsEmpty());
  machine_.Confirm();
  EXPECT_THAT(Fill(), ElementsAre(8));
  scheduler_.SetDecodeGroups(4);
  machine_.Confirm();
  EXPECT_THAT(Fill(), ElementsAre(2, 2, 2, 2));
}

TEST_F(DecodeGroups, MergeFragmentsWhenTheyDrift) {
  Decode(7);
  scheduler_.SetDecodeGroups(2);
  Fill();
  EXPECT_THAT(Sizes(), ElementsAre(4, 3));
  // Sequences that end leave groups uneven, until these come back.
  ASSERT_TRUE(scheduler_.Cancel(1).ok());
  ASSERT_TRUE(scheduler_.Cancel(2).ok());
  ASSERT_TRUE(scheduler_.Cancel(3).ok());
  Rounds(3);
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 2));
  machine_.Confirm();
  machine_.Confirm();
  scheduler_.SetDecodeGroups(3);
  Fill();
  EXPECT_THAT(Sizes(), UnorderedElementsAre(2, 1, 1));
}

}  // namespace
}  // namespace stagecoach
