#ifndef STAGECOACH_COORDINATOR_JOB_RUN_ENGINE_H_
#define STAGECOACH_COORDINATOR_JOB_RUN_ENGINE_H_

// Rank 0 of a job: one that serves requests, or one that measures (proto/probe.proto).

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/transport/endpoint.h"
#include "common/wire/handshake.h"
#include "coordinator/channel/engine_channel.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/request/sequence.h"
#include "coordinator/schedule/scheduler.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// What tests put into a job.
struct JobHooks {
  // Wraps the stages: the engine uses the returned pipeline, during whose life both pointers are valid. Null: as they
  // are.
  std::function<std::unique_ptr<Pipeline>(Pipeline* stages, Scheduler* scheduler)> wrap;
  // The guesser of a request, in place of the job's own, where the job speculates. Null: the job's own.
  std::function<std::unique_ptr<Guesser>(const Sequence&)> guesser;
};

// Reads ConfigureJob from the front; one with a probe is RunProbe's. Otherwise sets the stages up, then serves requests
// until ShutdownJob or until the front closes the socket. `hellos`: the coordinator's, then those of the stages in the
// order in which the layers pass through them, whatever their ranks; with a draft, its own is the last. Failures are
// reported to the front (JobFailed, after the status at that moment) and returned; the caller then ends the job hard.
// Runs on the thread that made `endpoint`.
absl::Status RunEngine(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                       const JobHooks& hooks = {});

// Measures what `job.probe()` asks for: every stage's host, its link and clock from here, the link to the stage behind
// it, whether it can read the model; then speeds and the model's step times, if wanted. Tells the front JobReady,
// reports with the progress twice a second and the complete one, and ends in order at the front's ShutdownJob.
// `hellos`: as of RunEngine. A link that cannot be measured and a model that a stage cannot read are told in the
// report. Errors: kUnavailable: a stage is lost or the front is gone; others are a stage's own.
absl::Status RunProbe(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                      const pb::ConfigureJob& job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_JOB_RUN_ENGINE_H_
