#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_PLANNER_H_

// Chooses the number of groups of the decoding sequences. A group is a micro-batch that goes round the pipeline on its
// own; its sequences get a token each round. More groups keep more stages busy and hide the hop from the last stage to
// the first; fewer groups read the weights less often. group_costs.h predicts the cost of a number; this finds the
// best. Pure and deterministic; not thread-safe.
//
// Choice   Of the numbers recently seen for such a load, the one with the shortest round.
// Trial    Another number is tried when the lower bound of its round is shorter by kGain. Stages of equal speed with a
//          host each thus never try fewer groups than stages. A trial at most halves or doubles the number, which
//          bounds its rounds to twice the time.
// End      After kTrialRounds rounds and kTrialResults results; after kTrialLeast results when they rule out kGain, as
//          most trials turn out far worse; or when the load changes.
// Again    A trial that changed nothing is repeated after a gap of kTrialGap results and kTrialGapRounds rounds, then
//          after 2, 4, 8 and 16 gaps; or earlier, when the sequences grew by half or shrank by a third and the first
//          trial does not rule out a gain.
// Guesses  Choose also says whether sequences guess ahead, and may take fewer groups for it (guess_planner.h); never
//          while another number is on trial.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "coordinator/schedule/groups/group_costs.h"
#include "coordinator/schedule/groups/guess_planner.h"
#include "coordinator/schedule/groups/guess_shares.h"

namespace stagecoach {

class GroupPlanner {
 public:
  struct Options {
    int32_t guess_rows = 1;  // rows of a sequence in flight at most, guessed ones included; 1: no guesses
    int32_t groups = 0;      // always so many; 0: the best
    double idle_us = 0;      // of each step, known to use no core
  };

  // The least gain, as a share of a round: times are noisy, and a change costs a round with uneven groups.
  static constexpr double kGain = 0.05;
  static constexpr int kTrialRounds = 3;
  static constexpr int64_t kTrialResults = 6, kTrialLeast = 2;
  static constexpr int64_t kTrialGap = 512;
  static constexpr int64_t kTrialGapRounds = 64;

  // host_of_stage: equal numbers for stages that share a host. most_groups: the most micro-batches in flight. Begins
  // with a group for every stage, at most most_groups. `reads`: of the model.
  GroupPlanner(const std::vector<int>& host_of_stage, int32_t most_groups, ReadCurve reads, const Options& options);
  GroupPlanner(const std::vector<int>& host_of_stage, int32_t most_groups, ReadCurve reads = {})
      : GroupPlanner(host_of_stage, most_groups, reads, Options()) {}
  GroupPlanner(const GroupPlanner&) = delete;

  using Result = GroupCosts::Result;
  // Results in order. Those with prompt rows, and those without times, are ignored.
  void Confirmed(const Result& result);

  // The number of groups for so many decoding sequences: 1 to most_groups, at most the sequences. Call it after every
  // result. About one call in kRefit, or in a round if that is longer, looks at all stages for each candidate, of which
  // there are about kSteps below and above; the others do nothing.
  int32_t Groups(int64_t decoding);

  // The groups, and who guesses ahead in them. `shares`: of the sequences' guesses; `guess_us`: GuessPlanner::Load's.
  // Call it after every result, in place of Groups, which it calls. It looks anew as often as that does.
  GroupChoice Choose(int64_t decoding, const GuessShares& shares, double guess_us);

  // The predicted round; absent before anything is known.
  std::optional<double> RoundUs(int64_t decoding, int32_t groups);

  uint64_t visits() const { return costs_.visits(); }  // of a stage's figures: the cost of planning, by count

 private:
  static constexpr int64_t kRefit = 16;  // results between two looks at the choice
  static constexpr int32_t kSteps = 16;  // numbers of groups that are looked at, up to twice as many or down to half
  static constexpr int64_t kLongestGap = 16;  // of the gap
  static constexpr int64_t kGuessNeeded = 4;  // results before the first guess of a lone sequence

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
  bool MayGuess(int64_t decoding, int32_t groups);
  void Plan(int64_t decoding);
  std::optional<int32_t> Better(int64_t decoding, int32_t now) const;
  void BeginTrial(int64_t decoding, int32_t now);
  bool TrialOver(int64_t decoding) const;

  const int32_t most_groups_;
  const Options options_;
  GroupCosts costs_;
  GuessPlanner guesses_;
  int64_t results_ = 0;  // with times, of any kind
  int64_t learned_ = 0;  // of them, those that taught
  int64_t planned_ = 0;  // learned_ at the last Plan
  int64_t planned_for_ = 0;
  int32_t groups_;
  std::optional<Trial> trial_;
  std::map<int32_t, Tried> tried_;  // by groups
  GroupChoice choice_;              // the last one
  int64_t next_look_ = 0;           // results_ at which it is due
  int64_t chosen_for_ = 0;          // decoding
  int32_t chosen_beside_ = 0;       // groups without guesses
  int32_t steady_groups_ = 0;       // groups without guesses now
  int64_t steady_since_ = 0;        // learned_ when they became so many
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_PLANNER_H_
