#ifndef STAGECOACH_COORDINATOR_JOB_SCHEDULER_SETUP_H_
#define STAGECOACH_COORDINATOR_JOB_SCHEDULER_SETUP_H_

// How a job's scheduler is made: the same for one that runs and one that is simulated.

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/schedule/scheduler.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Valid ones; errors as of ValidateSchedulerOptions, or of an unknown choice.
absl::StatusOr<SchedulerOptions> SchedulerOptionsOf(const pb::ConfigureJob& job, const JobPlan& plan,
                                                    const ModelDescription& model);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_SCHEDULER_SETUP_H_
