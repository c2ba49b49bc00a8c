#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_

// Where the time of an aligned job went.

#include <cstdint>
#include <vector>

#include "coordinator/trace/bubble_causes.h"
#include "coordinator/trace/stage_states.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

struct TraceSummary {
  struct Stage {
    StateSums us = {};  // add up to wall_us exactly
  };
  int64_t wall_us = 0;  // from the first submission to the last result
  int64_t micro_batches = 0, prefill_rows = 0, decode_rows = 0;
  std::vector<Stage> stages;
  BubbleCauses causes;
};

TraceSummary SummarizeTrace(const TraceJob& job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_SUMMARY_H_
