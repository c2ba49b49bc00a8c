#ifndef STAGECOACH_COORDINATOR_TRACE_ALIGN_TRACE_H_
#define STAGECOACH_COORDINATOR_TRACE_ALIGN_TRACE_H_

#include "absl/status/status.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Finishes what was recorded: gives every frame its own send, leaves the shutdown out, and brings the times of all
// stages to the engine's clock (clock_estimate.h). Stages of one host share its clock, those of the coordinator's have
// the engine's, and so has everything that is simulated. An aligned job stays as it is. kInvalidArgument: times of one
// host that go back, or that no clocks can have.
absl::Status AlignTrace(TraceJob* job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_ALIGN_TRACE_H_
