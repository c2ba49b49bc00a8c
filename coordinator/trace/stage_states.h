#ifndef STAGECOACH_COORDINATOR_TRACE_STAGE_STATES_H_
#define STAGECOACH_COORDINATOR_TRACE_STAGE_STATES_H_

// What a stage did at every moment of an aligned job. Each microsecond counts once, for the first of these that holds:
//   compute              it computes a micro-batch
//   send                 a frame of its is being sent (what of a send is not hidden behind computing)
//   wait for upstream    a micro-batch is submitted that it has not begun to compute: the frame is in an earlier stage,
//                        on its way, or being taken over by the computing thread
//   wait for downstream  every micro-batch in flight has passed it: it has to wait for a result to come back
//   idle                 nothing is in flight
// so that they add up to the job's time from the first submission to the last result.

#include <array>
#include <cstdint>
#include <vector>

#include "coordinator/trace/trace_job.h"

namespace stagecoach {

enum class StageState { kCompute, kSend, kWaitUpstream, kWaitDownstream, kIdle };
inline constexpr int kStageStates = 5;

struct StateSpan {
  StageState state;
  int64_t begin_us, end_us;  // begin < end
};

// Without a gap from the job's begin to its end, neighbours differ.
std::vector<StateSpan> StageStates(const TraceJob& job, int stage);

using StateSums = std::array<int64_t, kStageStates>;  // microseconds
StateSums SumStates(const std::vector<StateSpan>& spans);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_STAGE_STATES_H_
