#ifndef STAGECOACH_COORDINATOR_CLI_VERIFY_JOB_H_
#define STAGECOACH_COORDINATOR_CLI_VERIFY_JOB_H_

// One run of `verify` on a job: its requests go in, whole answers come out.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/verify_answer.h"
#include "coordinator/cli/verify_runs.h"
#include "coordinator/front/cluster_run.h"

namespace stagecoach {

// Waits until the job is ready. kCancelled after a signal; others are what the session says.
absl::Status AwaitReadyJob(ClusterRun* cluster);

// Layers of each stage of a job that is ready.
std::vector<int64_t> LayersOf(const pb::JobReady& ready);

// OK, or kOutOfRange with the first request that the job cannot hold and the options that help.
absl::Status CheckRoomForRequests(const std::vector<VerifyRequest>& requests, const pb::JobReady& ready);

// `earlier`: the answers that a restarted run goes on with, of whole runs; otherwise not looked at. `layers`: of the
// checksums that each row must have; 0: it need not. Errors: kCancelled after a signal; kUnavailable where a request
// cannot be computed; kInvalidArgument where one is refused; others are what the session says.
absl::StatusOr<std::vector<VerifyAnswer>> RunRequests(const VerifyRun& run, const std::vector<VerifyRequest>& requests,
                                                      const std::vector<VerifyAnswer>& earlier, int64_t layers,
                                                      ClusterRun* cluster);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERIFY_JOB_H_
