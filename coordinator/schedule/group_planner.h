#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_

// Into how many groups the decoding sequences are cut. Each group is a micro-batch that goes round the pipeline on its
// own; a sequence gets a token each time its group comes back. More groups keep more stages busy; fewer groups read the
// weights less often, for every group reads all of them. Pure; not thread-safe.
//
// The model, fitted from the times of every result: a stage needs for a micro-batch of r rows, while o other stages of
// its host compute (on average over its time),
//   t(r, o) = a + g * o + b * r
// a: reading its weights; g: by how much longer that takes beside another reader of the same memory; b: a row's work.
// With G groups over n sequences and S stages, a round (the time between two tokens of a sequence) takes
//   T(G) = max( max over stages of G * t(n / G, o(G)),   the slowest stage, which serves every group
//               sum over stages of t(n / G, o(G)) + h )  one group's way through all of them; h: hops and coordinator
//   o(G) = (stages of the host - 1) * min(1, (G - 1) / (S - 1))
// The least squares of each stage forget (half of their weight in kMemory results), so that growing contexts and other
// loads on a host are followed. Source of the round's form: performance.md of the field's pipelines, "throughput = b /
// max(stage time)", with the latency bound for fewer groups than stages.

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/step/step.h"

namespace stagecoach {

class GroupPlanner {
 public:
  // Results in which half of what was known is forgotten.
  static constexpr int kMemory = 256;
  // Results of decode rows alone that are needed before anything is changed.
  static constexpr int kNeeded = 16;
  // Another number of groups is taken only when a round is shorter by this part: figures are noisy, and a change costs
  // a round in which groups are uneven.
  static constexpr double kGain = 0.05;

  // host_of_stage: equal numbers for stages that share a host. most_groups: the most micro-batches in flight, also the
  // number before anything is known.
  GroupPlanner(std::vector<int> host_of_stage, int32_t most_groups);

  // A result came: of so many decode rows and, beside them, rows of prompts. `outside_us`: what its micro-batch took
  // from submit to result beyond the stages' computing.
  void Confirmed(int64_t decode_rows, int64_t prefill_rows, absl::Span<const StageTimes> times, int64_t outside_us);

  // The number of groups for so many decoding sequences: 1 to most_groups, and never more than sequences.
  int32_t Groups(int64_t decoding);

  // A round by the model; absent before enough is known.
  std::optional<double> RoundUs(int64_t decoding, int32_t groups) const;

 private:
  // Weighted sums for the least squares of t over (1, o, r).
  struct Fit {
    std::array<std::array<double, 3>, 3> products{};  // of the features with each other
    std::array<double, 3> with_time{};
    int seen = 0;

    void Add(double overlap, double rows, double time_us);
    std::array<double, 3> Solve() const;  // a, g, b; none negative
  };
  struct Seen {
    int64_t decode_rows = 0, prefill_rows = 0;
    std::vector<StageTimes> times;
  };

  void Learn(const Seen& seen);
  double OverlapOf(size_t stage, const StageTimes& times) const;

  const std::vector<int> host_of_stage_;
  const int32_t most_groups_;
  std::vector<int> host_stages_;  // by stage: stages of its host
  std::vector<Fit> fits_;         // by stage
  // What overlaps a micro-batch came back at most `most_groups` results before or after it.
  std::deque<Seen> recent_;
  size_t learned_ = 0;  // of recent_
  double outside_us_ = 0;
  int32_t groups_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUP_PLANNER_H_
