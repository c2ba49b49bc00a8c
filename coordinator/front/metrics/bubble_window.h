#ifndef STAGECOACH_COORDINATOR_FRONT_METRICS_BUBBLE_WINDOW_H_
#define STAGECOACH_COORDINATOR_FRONT_METRICS_BUBBLE_WINDOW_H_

// The idle share of the stages of late: what the engine reports counts from the beginning of a job. Not thread-safe.

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
  // Rows of prompts a second from about `span_us` before `now_us` on.
  double PromptRate(int64_t span_us, int64_t now_us) const;

 private:
  struct Point {
    int64_t at_us = 0;
    int stages = 0;
    double busy_s = 0;     // x stages
    double compute_s = 0;  // of all stages
    double prompt_rows = 0;
  };
  const Point* Before(int64_t at_us) const;

  std::deque<Point> points_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_METRICS_BUBBLE_WINDOW_H_
