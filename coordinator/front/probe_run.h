#ifndef STAGECOACH_COORDINATOR_FRONT_PROBE_RUN_H_
#define STAGECOACH_COORDINATOR_FRONT_PROBE_RUN_H_

// One job that measures its hosts and links, from its launch to its end.

#include "absl/status/statusor.h"
#include "coordinator/launch/launch_options.h"
#include "proto/probe.pb.h"

namespace stagecoach {

// Launches the job, or joins the one this process is part of: `engine_descriptor` is the socket to its engine, -1 for a
// launch. `options.job.probe` says what to measure. Draws the progress on stderr, catches signals (SignalWatch) and
// returns the complete report once the job has ended. Nothing is launched again. Errors carry their exit code:
// kCancelled: a signal came.
absl::StatusOr<pb::ProbeReport> RunProbeJob(LaunchOptions options, int engine_descriptor, bool show_progress);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_PROBE_RUN_H_
