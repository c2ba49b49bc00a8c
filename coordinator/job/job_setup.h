#ifndef STAGECOACH_COORDINATOR_JOB_JOB_SETUP_H_
#define STAGECOACH_COORDINATOR_JOB_JOB_SETUP_H_

// What a job's scheduler and its trace begin with: the same for one that runs and one that is simulated.

#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/schedule/scheduler.h"
#include "coordinator/trace/trace_job.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Valid ones; errors as of ValidateSchedulerOptions, or of an unknown choice.
absl::StatusOr<SchedulerOptions> SchedulerOptionsOf(const pb::ConfigureJob& job, const JobPlan& plan,
                                                    const ModelDescription& model);

// What a trace says of the job that begins now. `hellos`: the coordinator's, then those of the stages in the plan's
// order, and the draft's where the job has one.
TraceHeader TraceHeaderOf(const pb::ConfigureJob& job, const JobPlan& plan, const std::vector<pb::Hello>& hellos);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_JOB_SETUP_H_
