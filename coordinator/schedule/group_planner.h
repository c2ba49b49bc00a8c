#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_

// Into how many groups the decoding sequences are cut. Each group is a micro-batch that goes round the pipeline on its
// own; a sequence gets a token each time its group comes back. More groups keep more stages busy and hide the way from
// the last stage back to the first; fewer read the weights less often. What a number costs is group_costs.h's; here is
// how the best one is found. Pure and deterministic; not thread-safe.
//
// Choice   Of the numbers seen of late for such a load, the one with the shortest round.
// Trial    Another number is tried when the least that its round can take is shorter by kGain. So stages of equal speed
//          with a host each never go through fewer groups than stages, from where these could not gain. A number is at
//          most halved or doubled at once, which bounds a trial's rounds to twice the time.
// End      After kTrialRounds rounds and kTrialResults results; after kTrialLeast of these when they leave no chance of
//          kGain, for most trials turn out far worse; or with the load that it is for.
// Again    A trial that changed nothing is repeated after a gap of kTrialGap results and kTrialGapRounds rounds, twice
//          that, ... 16 times that; or earlier, when there are half as many sequences again, or a third fewer, and the
//          first trial leaves a chance for these.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "coordinator/schedule/group_costs.h"

namespace stagecoach {

class GroupPlanner {
 public:
  // Another number of groups is taken only when a round is shorter by this part: figures are noisy, and a change costs
  // a round in which groups are uneven.
  static constexpr double kGain = 0.05;
  static constexpr int kTrialRounds = 3;
  static constexpr int64_t kTrialResults = 6, kTrialLeast = 2;
  static constexpr int64_t kTrialGap = 512;
  static constexpr int64_t kTrialGapRounds = 64;

  // host_of_stage: equal numbers for stages that share a host. most_groups: the most micro-batches in flight. Before
  // anything is known there is a group for every stage, or that many.
  // `reads`: of the model.
  GroupPlanner(const std::vector<int>& host_of_stage, int32_t most_groups, ReadCurve reads = {});

  using Result = GroupCosts::Result;
  // A result came, in order. Those with rows of prompts, and those without times, teach nothing.
  void Confirmed(const Result& result);

  // The number of groups for so many decoding sequences: 1 to most_groups, and never more than sequences. To be asked
  // after every result. Most calls do nothing; one in 16 or so, or in a round where that has more, looks at all stages
  // for each of the numbers that come into question: of many groups these are about kSteps below and as many above.
  int32_t Groups(int64_t decoding);

  // A round by the model; absent before anything is known.
  std::optional<double> RoundUs(int64_t decoding, int32_t groups);

  uint64_t visits() const { return costs_.visits(); }  // of a stage's figures: what planning costs, by count

 private:
  static constexpr int64_t kRefit = 16;  // results between two looks at the choice
  static constexpr int32_t kSteps = 16;  // numbers of groups that are looked at, up to twice as many or down to half
  static constexpr int64_t kLongestGap = 16;  // of the gap

  struct Trial {
    int32_t groups = 0;
    int64_t decoding = 0;
    int64_t before = 0, wanted = 0;  // results with as many in flight: those there were, and those to come
    int64_t until = 0;               // results of any kind: by then it is over, whatever was seen
  };
  struct Tried {
    int64_t next = 0;  // results of any kind
    int64_t gap = 1;   // of the gap
    int64_t decoding = 0;
  };

  int32_t Most(int64_t decoding) const;  // groups
  void Plan(int64_t decoding);
  std::optional<int32_t> Better(int64_t decoding, int32_t now) const;
  void BeginTrial(int64_t decoding, int32_t now);
  bool TrialOver(int64_t decoding) const;

  const int32_t most_groups_;
  GroupCosts costs_;
  int64_t results_ = 0;  // with times, of any kind
  int64_t learned_ = 0;  // of them, those that taught
  int64_t planned_ = 0;  // learned_ at the last Plan
  int64_t planned_for_ = 0;
  int32_t groups_;
  std::optional<Trial> trial_;
  std::map<int32_t, Tried> tried_;  // by groups
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
