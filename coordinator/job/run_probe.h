#ifndef STAGECOACH_COORDINATOR_JOB_RUN_PROBE_H_
#define STAGECOACH_COORDINATOR_JOB_RUN_PROBE_H_

// Rank 0 of a job that measures (proto/probe.proto).

#include <vector>

#include "absl/status/status.h"
#include "common/transport/endpoint.h"
#include "coordinator/channel/engine_channel.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// Measures what `job.probe()` asks for: every stage's host, its link and clock from here, the link to the stage behind
// it, whether it can read the model; then speeds and the model's step times, if wanted. Tells the front JobReady,
// reports with the progress twice a second and the complete one, and ends in order at the front's ShutdownJob.
// `hellos`: as of RunEngine. A link that cannot be measured and a model that a stage cannot read are told in the
// report. Errors: kUnavailable: a stage is lost or the front is gone; others are a stage's own.
absl::Status RunProbe(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                      const pb::ConfigureJob& job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_RUN_PROBE_H_
