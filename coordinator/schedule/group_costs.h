#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUP_COSTS_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUP_COSTS_H_

// What a round of decoding, the time between two tokens of a sequence, takes with so many groups: learned from the
// times of results. Pure and deterministic; not thread-safe.
//
// For a micro-batch of r rows, while m micro-batches are in flight, a stage needs
//   t(r, m) = (a + g * o(m)) * w(r) + b * r,    o(m) = (stages of its host - 1) * min(1, (m - 1) / (S - 1))
//   a  reading its weights; w: how much more of them r rows touch than one (ReadCurve; 1 without experts)
//   b  a row's work
//   g  by how much each other stage of its host that computes meanwhile slows it down; o: how many do
// A round of G groups over n sequences and S stages takes
//   T(G) = max( max over stages of
//                 G * (a + g * o(G)) * w(n / G) + b * n,          the slowest stage, which serves every group
//               sum over stages of t(ceil(n / G), G) + h )        one group's way through all of them; h: hops and
//                                                                 the coordinator, waits in queues left out
// after GPipe's and PipeDream's bound of throughput, with the bound by latency that holds for fewer groups than stages.
// Without experts more groups read more; with experts a group of few rows reads few, and cutting 16 rows in four groups
// costs a stage 1.4 times the time instead of four times.
//
// a, g and b are the least squares of each stage (least_squares.h) over what was seen of each m, none negative. Within
// an m half is forgotten in kMemory results, to follow growing contexts and other loads of a host; between them nothing
// is, for a settled pipeline shows one m alone, from which g and b cannot be told apart from a. Stages are not as
// straight as that: of a G that was seen itself, a + g * o(G) is what its own mean leaves beside b.
//
// The least that T(G) can be, as far as is known of K in flight, whose mean results have r_K rows and take t_K:
//   t(r, G) >= c * (t_K - b * r_K) * w(r) / w_K + b * r,    c = (1 + o(G)) / (1 + o(K)) where G < K, else 1
// with b between its least value and t_K / r_K, whichever of them makes it less.
//   c            stages that share the memory have at best as much more of it as there are fewer of them
//   least b      that of the line through what was seen of K, less two standard errors (Draper and Smith, Applied
//                Regression Analysis, chapter 1) and less what w may add to that line; 0 where all had the same rows.
//                It holds for more rows as well: a step is bound by reading first, so rows never get cheaper.
//   K = G        t_K is taken two standard errors lower. Either error is that of a noise of kLeastNoise or more.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/step/step.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

class GroupCosts {
 public:
  static constexpr int kMemory = 64;           // results with as many in flight in which half is forgotten
  static constexpr double kLeastNoise = 0.05;  // of a time
  static constexpr int64_t kNeeded = 16;       // results from which a number of micro-batches in flight is known

  // host_of_stage: equal numbers for stages that share a host; at least one. `reads`: of the whole model, for all
  // stages.
  explicit GroupCosts(const std::vector<int>& host_of_stage, ReadCurve reads = {});

  struct Result {
    int64_t decode_rows = 0, prefill_rows = 0;
    int32_t in_flight = 0;      // micro-batches with itself, when it was submitted or when it came back: what was more
    int64_t round_trip_us = 0;  // from submit to result, by the coordinator's clock; no stage is believed to have
                                // computed for longer
    absl::Span<const StageTimes> times;  // [stages]
  };
  // A result came, in order. Returns whether it taught something: those with rows of prompts do not.
  bool Confirmed(const Result& result);

  int64_t results(int32_t in_flight) const;  // that taught
  void Fade(int32_t in_flight);              // what was seen of so many counts for no more than one result from now on

  // Takes what was learned since into the fit that RoundUs rests on.
  void Refit();
  double RoundUs(int64_t decoding, int32_t groups) const;  // T

  // The least that T can be by what is known of `now` micro-batches in flight and of the next smaller and larger
  // numbers that are, at most `decoding`; `own`: and by what was seen of `groups` itself, be it little.
  double LeastRoundUs(int64_t decoding, int32_t groups, int32_t now, bool own) const;

  int stages() const { return static_cast<int>(host_stages_.size()); }
  uint64_t visits() const { return visits_; }  // of a stage's figures, by all of the above

 private:
  // What was seen with so many micro-batches in flight: sums whose weights halve in kMemory results.
  struct Seen {
    explicit Seen(size_t stages) : time_us(stages), reads_time_us(stages), rows_time_us(stages), time_squared(stages) {}
    void Scale(double part);  // the sums

    int64_t results = 0;
    double weight = 0, rows = 0, rows_squared = 0;
    double reads = 0, reads_squared = 0, reads_rows = 0;                     // of w
    std::vector<double> time_us, reads_time_us, rows_time_us, time_squared;  // [stages]
  };
  struct Cost {
    double a = 0, g = 0, b = 0;
  };
  using SeenOf = std::map<int32_t, Seen>;

  void Learn(const Result& result);
  void LearnOutside(const Result& result);
  double Overlap(size_t stage, int32_t in_flight) const { return (host_stages_[stage] - 1) * Share(in_flight); }
  double Share(int32_t in_flight) const;  // of the other stages: those that compute meanwhile
  double LeastRoundBy(const SeenOf::value_type& known, int64_t decoding, int32_t groups) const;

  const std::vector<int> host_stages_;  // by stage: stages of its host
  const ReadCurve reads_;
  SeenOf seen_;                       // by micro-batches in flight
  std::vector<Cost> costs_;           // by stage; of the last Refit
  std::vector<int64_t> free_us_;      // by stage, its clock: the end of what it computed last
  std::optional<double> outside_us_;  // h
  bool fitted_ = true;                // costs_ are of all that was learned
  mutable uint64_t visits_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUP_COSTS_H_
