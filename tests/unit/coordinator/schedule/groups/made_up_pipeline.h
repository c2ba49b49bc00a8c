#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GROUPS_MADE_UP_PIPELINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GROUPS_MADE_UP_PIPELINE_H_

// A pipeline that costs time, for what decides how it is filled.

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "common/base/counter_rng.h"
#include "common/step/step.h"
#include "coordinator/schedule/policy/step_time.h"

namespace stagecoach {

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
  // By which a hop takes longer for each other micro-batch in flight: what moves them has few cores.
  void CrowdHops(double us) { crowd_us_ = us; }

  struct InFlight {
    int64_t rows;
    int32_t in_flight;
    double submit_us, result_us;
    std::vector<StageTimes> times;
  };

  // Sends a group of so many rows in, which take so much longer at every stage.
  void Submit(int64_t rows, double more_us = 0) {
    InFlight flight{rows, static_cast<int32_t>(in_flight_.size() + 1), now_us_, 0, {}};
    const double hop_us = hop_us_ + crowd_us_ * static_cast<double>(in_flight_.size());
    double at = now_us_ + hop_us;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const double begin = std::max(at, free_us_[s]);
      const double end = begin + StepUs(s, rows, begin) + more_us;
      flight.times.push_back({.stage = static_cast<int32_t>(s),
                              .received_us = static_cast<int64_t>(at),
                              .start_us = static_cast<int64_t>(begin),
                              .end_us = static_cast<int64_t>(end)});
      free_us_[s] = end;
      busy_[s] = {begin, end};
      at = end + hop_us;
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
    for (size_t other = 0; contention_ > 0 && other < stages_.size(); ++other) {
      if (other == s || stages_[other].host != stages_[s].host) continue;
      if (busy_[other].second > begin + 1) beside += 1;
    }
    // A stage that is earlier in the pipeline has begun with the next group by then, when there is one.
    for (size_t other = 0; contention_ > 0 && other < s; ++other) {
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
  double factor_ = 1, crowd_us_ = 0;
  uint64_t draws_ = 0;
  std::queue<InFlight> in_flight_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GROUPS_MADE_UP_PIPELINE_H_
