#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_TRACE_MADE_UP_RUN_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_TRACE_MADE_UP_RUN_H_

// Runs of a pipeline whose times the test knows.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/trace/trace_job.h"

namespace stagecoach::testing {

// `micro_batches` go through the stages, at most `in_flight` at once, each as soon as it can.
struct MadeUpRun {
  std::vector<int64_t> compute_us;  // [stages]
  int in_flight = 1;
  int micro_batches = 1;
  int64_t turn_us = 0, hop_us = 0;
  int64_t send_us = 0;  // begins with the end of computing
  std::vector<int64_t> offset_us = std::vector<int64_t>(compute_us.size(), 0);

  int64_t start_us = 1000000;

  // As the engine records it; host k for stage k, the coordinator on one of its own.
  TraceJob Recorded() const {
    TraceJob job;
    job.header = {.version = "test", .coordinator_host = "front", .start_us = start_us};
    const size_t stages = compute_us.size();
    for (size_t s = 0; s < stages; ++s) {
      const int64_t layer = static_cast<int64_t>(s) * 4;
      job.header.stages.push_back({static_cast<int32_t>(s) + 1, "host" + std::to_string(s), layer, layer + 4, 2});
    }
    std::vector<int64_t> free_us(stages, 0), confirmed_us;
    std::vector<std::pair<int64_t, int64_t>> sent(stages, {0, 0});
    int64_t submitted_us = start_us;
    for (int i = 0; i < micro_batches; ++i) {
      TraceStep step = {.number = static_cast<uint64_t>(i), .decode_rows = 1, .sequences = 1};
      step.queues = {
          .waiting = 0, .running = in_flight, .blocks_used = {3}, .blocks_free = {5}, .in_flight = in_flight - 1};
      step.ready_us = i < in_flight ? start_us : confirmed_us[static_cast<size_t>(i - in_flight)];
      step.submit_us = submitted_us = std::max(submitted_us, step.ready_us + turn_us);
      int64_t at_us = step.submit_us;
      for (size_t s = 0; s < stages; ++s) {
        TraceSpan span;
        span.received_us = at_us + hop_us;
        span.start_us = std::max(span.received_us, free_us[s]);
        span.end_us = free_us[s] = at_us = span.start_us + compute_us[s];
        if (sent[s].second <= span.start_us && sent[s].second > 0) {
          span.send_start_us = sent[s].first;
          span.send_end_us = sent[s].second;
        }
        sent[s] = {span.end_us, span.end_us + send_us};
        for (int64_t* us : {&span.received_us, &span.start_us, &span.end_us}) *us += offset_us[s];
        if (span.send_start_us > 0) {
          span.send_start_us += offset_us[s];
          span.send_end_us += offset_us[s];
        }
        step.stages.push_back(span);
      }
      step.confirm_us = at_us + hop_us;
      confirmed_us.push_back(step.confirm_us);
      job.steps.push_back(step);
    }
    return job;
  }
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_TRACE_MADE_UP_RUN_H_
