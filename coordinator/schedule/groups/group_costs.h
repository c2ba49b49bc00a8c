#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_COSTS_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_COSTS_H_

// Predicts a decode round, the time between two tokens of a sequence, for a number of groups. Learns from the times of
// results. Pure and deterministic; not thread-safe.
//
// A stage computes a micro-batch of r rows, with m micro-batches in flight, in
//   t(r, m) = (a + g * o(m)) * w(r) + b * r,    o(m) = (stages of its host - 1) * min(1, (m - 1) / (S - 1))
//   a  reading its weights; w: how many times as much r rows read (ReadCurve; 1 without experts)
//   b  work of a row
//   g  slowdown by each other stage of the host that computes at the same time; o: how many do
// A round of G groups over n sequences and S stages takes
//   T(G) = max( max over stages of G * (a + g * o(G)) * w(n / G) + b * n,   the slowest stage serves every group
//               sum over stages of t(ceil(n / G), G) + h )                  one group's latency; h: hops, coordinator
// which is the throughput bound of GPipe and PipeDream, and the latency bound that holds for fewer groups than stages.
//
// Each stage's a, g and b are non-negative least squares (least_squares.h) over all m. Results with the same m lose
// half their weight in kMemory results, to follow growing contexts and other load; different m do not age each other,
// since one m alone cannot tell g and b from a. While all have the same rows, b stays what it was; at first it is a
// row's of the largest micro-batch with prompt rows. For an observed G, its own mean without b's part is its a + g *
// o(G).
//
// Lower bound of T(G), from K micro-batches in flight with mean rows r_K and mean time t_K:
//   t(r, G) >= c * (t_K - b * r_K) * w(r) / w_K + b * r,    c = (1 + o(G)) / (1 + o(K)) where G < K, else 1
// with b between its lower bound and t_K / r_K, whichever gives less.
//   c      stages that share memory gain at most in proportion to how many fewer they are
//   b      lower bound: slope of the line through K's results, less two standard errors (Draper and Smith, Applied
//          Regression Analysis, chapter 1) and less what w may add; 0 where all results had the same rows. It also
//          holds for more rows: reading hides the work of the first rows, so rows never get cheaper
//   K = G  t_K is two standard errors lower. Both errors assume a noise of at least kLeastNoise.
//
// With guesses (guess_planner.h) as many micro-batches are in flight as guessed rows need, which none before were, and
// results with as few as there are groups become old. LoopUs is T for that:
//   stage alone on its host       a and b of the latest results, whatever was in flight: its g has no part
//   stage that shares its host    its own mean of so many in flight, however few results; else a + g * o(m)
//   before g is known             its stages take turns: g is a, but for the part of it that uses no core
//   h, where any share a host     its own mean of so many in flight, too: hops and the coordinator use the same cores.
//                                 Two stages of 70 us on two cores: 160 us with one in flight, 350 with three

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
  static constexpr int64_t kOwnNeeded = 2;     // results from which LoopUs takes a number's own mean

  // host_of_stage: equal numbers for stages that share a host; at least one. `reads`: of all stages. `idle_us`: of each
  // step, known to use no core.
  explicit GroupCosts(const std::vector<int>& host_of_stage, ReadCurve reads = {}, double idle_us = 0);

  struct Result {
    int64_t decode_rows = 0, prefill_rows = 0;  // guessed rows are decode rows
    int32_t in_flight = 0;      // micro-batches, itself included: at its submit or its return, the larger number
    int64_t round_trip_us = 0;  // from submit to result, by the coordinator's clock; caps the stages' times
    absl::Span<const StageTimes> times;  // [stages]
    int64_t void_rows = 0;               // of decode_rows
  };
  // Results in order. Returns whether it was learned from: those with prompt rows are not, but for b, nor those with
  // void rows, which skip the output head.
  bool Confirmed(const Result& result);

  int64_t results(int32_t in_flight) const;  // that were learned from
  void Fade(int32_t in_flight);              // reduces the weight of what was seen of so many to one result

  // Updates the fit that RoundUs uses.
  void Refit();
  double RoundUs(int64_t decoding, int32_t groups) const;  // T
  // T of so many rows in so many micro-batches in flight, as above, the largest of `largest` rows. kAlone: as if stages
  // that share a host never slowed each other down.
  enum class Beside { kKnown, kAlone };
  double LoopUs(int64_t rows, int32_t in_flight, int64_t largest, Beside beside = Beside::kKnown) const;

  // Lower bound of T from results with `now` micro-batches in flight and with the next smaller and larger numbers that
  // are known, at most `decoding`; `own`: also from results with `groups` themselves, however few.
  double LeastRoundUs(int64_t decoding, int32_t groups, int32_t now, bool own) const;

  int stages() const { return static_cast<int>(host_stages_.size()); }
  bool shares_hosts() const { return shares_hosts_; }  // whether any two stages do
  uint64_t visits() const { return visits_; }          // of a stage's figures, by all of the above

 private:
  // What was seen with so many micro-batches in flight: sums whose weights halve in kMemory results.
  struct Seen {
    explicit Seen(size_t stages) : time_us(stages), reads_time_us(stages), rows_time_us(stages), time_squared(stages) {}
    void Scale(double part);  // the sums

    int64_t results = 0;
    double weight = 0, rows = 0, rows_squared = 0;
    double reads = 0, reads_squared = 0, reads_rows = 0;                     // of w
    double outside_us = 0;                                                   // of h
    std::vector<double> time_us, reads_time_us, rows_time_us, time_squared;  // [stages]
  };
  struct Cost {
    double a = 0, g = 0, b = 0;
  };
  using SeenOf = std::map<int32_t, Seen>;

  void Learn(const Result& result);
  void Learn(const Result& result, double outside_us, Seen* seen);
  double OutsideOf(const Result& result) const;
  // T, whose h is `outside_us` and whose stages take Reading(stage) to read what one row needs.
  template <typename Reading>
  double RoundOf(int64_t rows, int32_t in_flight, double largest, double outside_us, const Reading& reading) const;
  double RowOfPrompt(size_t stage) const;                   // b, by prompt rows; 0: they do not tell
  double OwnReading(const Seen& seen, size_t stage) const;  // a + g * o(m), as `seen` was
  double LoopReading(size_t stage, int32_t in_flight, Beside beside) const;
  double LoopOutside(int32_t in_flight, Beside beside) const;
  double Overlap(size_t stage, int32_t in_flight) const { return (host_stages_[stage] - 1) * Share(in_flight); }
  double Share(int32_t in_flight) const;  // of the other stages: those that compute meanwhile
  double LeastRoundBy(const SeenOf::value_type& known, int64_t decoding, int32_t groups) const;

  const std::vector<int> host_stages_;  // by stage: stages of its host
  const bool shares_hosts_;
  const ReadCurve reads_;
  const double idle_us_;
  SeenOf seen_;                       // by micro-batches in flight
  Seen latest_;                       // whatever was in flight
  int64_t beside_ = 0;                // results with several in flight
  std::vector<Cost> costs_;           // by stage; of the last Refit
  double prompt_rows_ = 0;            // of the largest result with any: all its rows
  std::vector<double> prompt_us_;     // by stage: its time
  std::vector<int64_t> free_us_;      // by stage, its clock: the end of what it computed last
  std::optional<double> outside_us_;  // h
  bool fitted_ = true;                // costs_ are of all that was learned
  int64_t fitted_results_ = 0;        // latest_'s, at the last Refit
  mutable uint64_t visits_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GROUP_COSTS_H_
