#ifndef STAGECOACH_COORDINATOR_ENGINE_RUN_ENGINE_H_
#define STAGECOACH_COORDINATOR_ENGINE_RUN_ENGINE_H_

// Rank 0 of the job.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/transport/endpoint.h"
#include "common/wire/handshake.h"
#include "coordinator/channel/engine_channel.h"
#include "proto/control.pb.h"

namespace stagecoach {

// Reads ConfigureJob from the front, sets the stages up, then serves requests until ShutdownJob or until the front
// closes the socket. `hellos`: the coordinator's, then those of the stages in the order in which the layers pass
// through them, whatever their ranks. Failures are reported to the front (JobFailed) and returned; the caller then ends
// the job hard. Runs on the thread that made `endpoint`.
absl::Status RunEngine(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* front);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_ENGINE_RUN_ENGINE_H_
