#ifndef STAGECOACH_COMMON_WIRE_HANDSHAKE_H_
#define STAGECOACH_COMMON_WIRE_HANDSHAKE_H_

// The first thing ranks say to each other, and whether the world they form can be a job.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/frame.h"
#include "proto/control.pb.h"
#include "proto/probe.pb.h"

namespace stagecoach {

inline constexpr char kProgramVersion[] = "0.1.0";
inline constexpr int kCoordinatorRank = 0;  // which rank is which stage, the coordinator decides

// This process as a rank: host, process id, cores and memory it may use, a stage's CPUs. `isas`: the instruction sets
// of its kernels, the best last; none for the coordinator, which computes nothing.
pb::Hello MakeHello(pb::Hello::Role role, const std::vector<InstructionSet>& isas);

// What else there is to say of this host, in a probe.
pb::ProbeHost DescribeHost();

// One Hello per rank, by rank, each with its rank set. kInvalidArgument for bytes that are no Hello.
absl::StatusOr<std::vector<pb::Hello>> ParseHellos(const std::vector<std::string>& bytes);

// The version of `hello` when it is not `expected`'s: "runs version 0.2.0 (protocol 4), the coordinator runs ...";
// empty when it is.
std::string OtherVersion(const pb::Hello& hello, const pb::Hello& coordinator);

// Exactly rank 0 coordinates, all others are stages and there is at least one, all are of one version and every stage
// names its instruction sets: otherwise kFailedPrecondition with one message that says what was started and what to
// start instead.
absl::Status CheckWorld(const std::vector<pb::Hello>& hellos);

JobEpoch EpochOf(const pb::StageAssignment& assignment);

// What coordinator and stages both know of a job's frames. `wire_type` of the assignment must be valid.
FrameLimits LimitsOf(const pb::StageAssignment& assignment, int64_t hidden, int64_t vocab);

// "stage 1 on node7": how a stage is named in every message.
std::string StageName(int stage, const std::string& host);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_HANDSHAKE_H_
