#ifndef STAGECOACH_COORDINATOR_SERVE_METRICS_BUBBLE_WINDOW_H_
#define STAGECOACH_COORDINATOR_SERVE_METRICS_BUBBLE_WINDOW_H_

// The idle share of the stages of late, and how fast they get on with prompts: what the engine reports counts from the
// beginning of a job. Not thread-safe.

#include <cstdint>
#include <deque>

#include "proto/engine.pb.h"

namespace stagecoach {

class BubbleWindow {
 public:
  // The statistics of the session at one moment: sums that grow. Kept for a minute, one each tenth of a second at most.
  void Take(const pb::JobStatistics& statistics, int64_t now_us);

  // 1 - computed / (stages x busy) of about the last `span_us` before the latest Take; 0 without work in it.
  double Over(int64_t span_us) const;
  // The least that the work in it allowed: the same with the time that an ideal pipeline has work for `busy`.
  double FloorOver(int64_t span_us) const;
  // Rows of prompts a second of the time in which there were any to compute, from about `span_us` before `now_us` on.
  // Where there were none then, as it was the last time; 0 before the first.
  double PromptRate(int64_t span_us, int64_t now_us) const;

 private:
  struct Point {
    int64_t at_us = 0;
    int stages = 0;
    double busy_s = 0;     // x stages
    double compute_s = 0;  // of all stages
    double ideal_s = 0;    // busy_s of the ideal pipeline, of which the statistics give the share that it idles
    double prompt_rows = 0;
  };
  // What was computed between two neighbours in which there were prompts.
  struct PromptWork {
    double rows = 0, seconds = 0;
    double rate() const { return seconds > 0 ? rows / seconds : 0; }
  };
  static PromptWork WorkBetween(const Point& before, const Point& after);
  const Point* Before(int64_t at_us) const;
  double IdleShare(int64_t span_us, double Point::*time) const;

  std::deque<Point> points_;
  double last_rate_ = 0;  // of the latest prompts
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SERVE_METRICS_BUBBLE_WINDOW_H_
