#ifndef STAGECOACH_STAGE_WORKER_SERVE_STAGE_H_
#define STAGECOACH_STAGE_WORKER_SERVE_STAGE_H_

#include "absl/status/status.h"
#include "common/transport/endpoint.h"

namespace stagecoach {

// The whole life of a stage: waits for its assignment from rank 0, loads, serves until the shutdown frame; or measures,
// where the first word of rank 0 is an order of a probe (proto/probe.proto). Errors were reported to the coordinator as
// far as it could be reached. Runs on the thread that made `endpoint`.
absl::Status ServeStage(Endpoint* endpoint);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SERVE_STAGE_H_
