#ifndef STAGECOACH_COORDINATOR_ENGINE_BUBBLE_METER_H_
#define STAGECOACH_COORDINATOR_ENGINE_BUBBLE_METER_H_

// Measures the bubble, the idle share of the stages' time while there was work, and its floor, the least possible for
// the same work. The floor replays the run in an ideal pipeline: stages take the measured times, work on one
// micro-batch at a time and in order, hops and the coordinator take no time, and a micro-batch enters as soon as the
// result it waited for (the last one confirmed before its submit) is there. Idle time left then is due to the work: too
// few sequences, fill and drain, uneven stages.
//
// Rows that prove void (SampledToken::is_void) are computed for nothing: their part of a stage's time is busy, but no
// work, so it counts as bubble. Pure; not thread-safe.

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "common/step/step.h"

namespace stagecoach {

class BubbleMeter {
 public:
  explicit BubbleMeter(int stages) : stages_(static_cast<size_t>(stages)) {}

  void Submitted(uint64_t number, int64_t now_us);
  // `result.times`: of each stage. Reported compute and send times are capped by what this clock permits.
  // void_share: of its rows.
  void Confirmed(const StepResult& result, int64_t now_us, double void_share = 0);

  // Up to now; what is in flight has brought no times of stages yet.
  int64_t busy_us(int64_t now_us) const;  // with at least one micro-batch in flight
  int64_t compute_us(int stage) const { return stages_[stage].compute_us; }
  int64_t void_us(int stage) const { return stages_[stage].void_us; }  // of it, for void rows
  // In which at least one frame was being sent, of the sends that were told.
  int64_t send_us(int stage) const { return stages_[stage].send_us; }
  // Moving average of a send, in which each counts for an eighth. 0: none yet.
  int64_t hop_us(int stage) const { return std::llround(stages_[stage].hop_us); }
  double Measured(int64_t now_us) const;  // 1 - sum of (compute - void) / (stages x busy time); 0 before any work
  double Floor() const;                   // the same of the ideal pipeline

 private:
  struct InFlight {
    int64_t submitted_us;
    double ready_us;  // ideal pipeline: when it could enter
  };
  struct Stage {
    int64_t compute_us = 0, send_us = 0, void_us = 0;  // measured; at most kMostUs
    int64_t send_start_us = 0;                         // of the send told last
    int64_t sent_until_us = 0;                         // the latest end of those told
    double hop_us = 0;
    double free_us = 0;  // ideal pipeline: when it is free again
  };
  static void Sent(int64_t start_us, int64_t us, Stage* stage);
  double BubbleOf(double span_us) const;

  int64_t first_submitted_us_ = -1;  // of all
  int64_t busy_since_us_ = 0;
  int64_t busy_us_ = 0;
  std::map<uint64_t, InFlight> in_flight_;  // by number
  double last_confirmed_us_ = 0;            // ideal pipeline: when the result confirmed last was there
  std::vector<Stage> stages_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_BUBBLE_METER_H_
