#ifndef STAGECOACH_TESTS_TESTING_CLUSTER_PROBE_FRONT_H_
#define STAGECOACH_TESTS_TESTING_CLUSTER_PROBE_FRONT_H_

#include "absl/status/statusor.h"
#include "proto/engine.pb.h"

namespace stagecoach::testing {

// The front's side of a job that measures: sends the job over the socket, which it owns, waits for the complete report,
// and ends the job in order. The status is the JobFailed that the engine reported.
absl::StatusOr<pb::ProbeReport> RunProbeFront(int descriptor, const pb::ConfigureJob& job);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_CLUSTER_PROBE_FRONT_H_
