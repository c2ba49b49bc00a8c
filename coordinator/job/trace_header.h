#ifndef STAGECOACH_COORDINATOR_JOB_TRACE_HEADER_H_
#define STAGECOACH_COORDINATOR_JOB_TRACE_HEADER_H_

#include <vector>

#include "coordinator/plan/job_plan.h"
#include "coordinator/trace/trace_job.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// What a trace says of the job that begins now. `hellos`: the coordinator's, then those of the stages in the plan's
// order.
TraceHeader TraceHeaderOf(const pb::ConfigureJob& job, const JobPlan& plan, const std::vector<pb::Hello>& hellos);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_TRACE_HEADER_H_
