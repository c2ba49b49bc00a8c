#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_

// Into how many groups the decoding sequences are cut. Each group is a micro-batch that goes round the pipeline on its
// own; a sequence gets a token each time its group comes back. More groups keep more stages busy and hide the way from
// the last stage back to the first; fewer groups read the weights less often, for every group reads all of them. Pure
// and deterministic; not thread-safe.
//
// The model: a stage needs for a micro-batch of r rows, while m micro-batches are in flight,
//   t(r, m) = a + g * o(m) + b * r,    o(m) = (stages of its host - 1) * min(1, (m - 1) / (S - 1))
// a: reading its weights; b: a row's work; o: how many other stages of its host compute meanwhile, and g by how much
// each of them slows it down, for they share the host's memory. With G groups over n sequences and S stages a round
// (the time between two tokens of a sequence) takes
//   T(G) = max( max over stages of G * (a + g * o(G)) + b * n,    the slowest stage, which serves every group
//               sum over stages of t(ceil(n / G), G) + h )        one group's way through all of them; h: hops and
//                                                                 the coordinator, waits in queues left out
// after "throughput = b / max over stages of (t + what of the hop is not hidden)" (GPipe, PipeDream), with the bound by
// latency that holds for fewer groups than stages.
//
// a, g and b are the least squares of each stage over what was seen of each m, none negative. Within an m half is
// forgotten in kMemory results, so that growing contexts and other loads of a host are followed; between them nothing
// is, for a pipeline that has settled shows one m alone, from which g and b cannot be told apart from a.
//
// Hence trials. Only what has been seen is ever chosen. Another number is tried, for kTrialRounds rounds and
// kTrialResults results, when T of it could be shorter by kGain at best: with fewer groups if rows were free and other
// stages of a host cost all that they can (1 + o of them share the memory), with more if all that a stage does were
// rows. So stages of equal speed with a host each are never taken through fewer groups than stages, from where these
// could not gain. A number is at most halved or doubled at once, which bounds what a trial can cost to twice the time
// for its rounds; one that changed nothing is made again only after kTrialGap results, twice that, ... 16 times that,
// or when there are half as many sequences again, or a third fewer.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/step/step.h"

namespace stagecoach {

class GroupPlanner {
 public:
  // Results with as many micro-batches in flight in which half of what was known is forgotten.
  static constexpr int kMemory = 64;
  // Results of decode rows alone that must be known of a number of groups before it is left for another.
  static constexpr int kNeeded = 16;
  // Another number of groups is taken only when a round is shorter by this part: figures are noisy, and a change costs
  // a round in which groups are uneven.
  static constexpr double kGain = 0.05;
  static constexpr int kTrialRounds = 3;
  static constexpr int64_t kTrialResults = 6;
  static constexpr int64_t kTrialGap = 512;

  // host_of_stage: equal numbers for stages that share a host. most_groups: the most micro-batches in flight. Before
  // anything is known there is a group for every stage, or that many.
  GroupPlanner(std::vector<int> host_of_stage, int32_t most_groups);

  struct Result {
    int64_t decode_rows = 0, prefill_rows = 0;
    int32_t in_flight = 0;      // micro-batches, when it was submitted, with itself
    int64_t round_trip_us = 0;  // from submit to result, by the coordinator's clock
    absl::Span<const StageTimes> times;
  };
  // A result came, in order. Those with rows of prompts, and those without times, teach nothing.
  void Confirmed(const Result& result);

  // The number of groups for so many decoding sequences: 1 to most_groups, and never more than sequences. To be asked
  // after every result. Most calls do nothing; one in 16 or so looks at all stages, and where there are many of them at
  // fewer results.
  int32_t Groups(int64_t decoding);

  // A round by the model; absent before kNeeded results.
  std::optional<double> RoundUs(int64_t decoding, int32_t groups);

 private:
  static constexpr int kRefit = 16;           // results between two looks at the choice
  static constexpr int kStagesAResult = 32;   // more stages than that learn from fewer of the results
  static constexpr int64_t kLongestGap = 16;  // of kTrialGap

  // What was seen with so many micro-batches in flight: sums whose weights halve in kMemory results.
  struct Seen {
    int64_t results = 0;
    double weight = 0, rows = 0, rows_squared = 0;
    std::vector<double> time_us, rows_time_us;  // [stages]
  };
  struct Cost {
    double a = 0, g = 0, b = 0;
  };
  struct Trial {
    int32_t groups = 0;
    int64_t seen_enough = 0;  // results with as many in flight
    int64_t until = 0;        // confirmed results: by then it is over, whatever was seen
  };
  struct Tried {
    int64_t next = 0;  // confirmed results
    int64_t gap = kTrialGap;
    int64_t decoding = 0;
  };

  void LearnOutside(const Result& result);
  void Refit();
  Cost Solve(size_t stage) const;
  double Overlap(size_t stage, int32_t in_flight) const;
  double Round(int64_t decoding, int32_t groups) const;
  // The shortest that a round could be, as far as is known of all numbers of groups, or of one of them.
  double BestRound(int64_t decoding, int32_t groups) const;
  double BestRound(int64_t decoding, int32_t known, int32_t groups) const;
  bool Known(int32_t groups, int64_t results) const;
  void Plan(int64_t decoding);
  void BeginTrial(int64_t decoding, int32_t now);
  bool TrialOver(int64_t decoding) const;
  void EndTrial();

  const std::vector<int> host_of_stage_;
  const int32_t most_groups_;
  std::vector<int> host_stages_;  // by stage: stages of its host
  std::map<int32_t, Seen> seen_;  // by micro-batches in flight
  std::vector<Cost> costs_;       // by stage; of the last Refit
  std::vector<int64_t> free_us_;  // by stage, its clock: the end of what it computed last
  std::optional<double> outside_us_;
  int64_t confirmed_ = 0;  // results of decode rows alone
  int64_t learned_ = 0;    // of them
  int64_t fitted_ = 0;     // learned_ at the last Refit
  int64_t planned_ = 0;    // learned_ at the last Plan
  int64_t planned_for_ = 0;
  int32_t groups_;
  std::optional<Trial> trial_;
  std::map<int32_t, Tried> tried_;  // by groups
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
