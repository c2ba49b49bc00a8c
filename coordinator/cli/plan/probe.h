#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PROBE_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PROBE_H_

// A job that measures hosts and links, from its launch to the profile that the planner reads.

#include <memory>

#include "absl/status/statusor.h"
#include "common/model/model_description.h"
#include "coordinator/launch/launch_options.h"
#include "coordinator/plan/host_profile.h"

namespace stagecoach {

// Launches the job, or joins the one this process is part of (RunProbeJob), and measures speeds and, of a model, its
// steps; `model` is that of `options.job`, nullptr without one. Errors carry their exit code: kCancelled, a signal
// came; a host whose model file is another one or which cannot be reached is named.
absl::StatusOr<HostProfile> MeasureProfile(LaunchOptions options, int engine_descriptor,
                                           const std::shared_ptr<const ModelDescription>& model, bool show_progress);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PROBE_H_
