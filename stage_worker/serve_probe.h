#ifndef STAGECOACH_STAGE_WORKER_SERVE_PROBE_H_
#define STAGECOACH_STAGE_WORKER_SERVE_PROBE_H_

#include "absl/status/status.h"
#include "common/transport/endpoint.h"
#include "proto/probe.pb.h"

namespace stagecoach {

// The whole life of a stage that measures (proto/probe.proto): carries out the coordinator's orders one by one, each
// with an answer, until the one that ends it; `first` is the one that has come already. Measurements run on a thread of
// their own, so pings are answered and heartbeats sent all the while; a later order gives up a link that is still being
// measured. The setup channel from the coordinator is open. Errors are those of the transport and of orders that no
// coordinator of ours sends; they were reported as far as it could be reached. Runs on the endpoint's thread.
absl::Status ServeProbe(Endpoint* endpoint, const pb::ProbeOrder& first);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SERVE_PROBE_H_
