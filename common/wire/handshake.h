#ifndef STAGECOACH_COMMON_WIRE_HANDSHAKE_H_
#define STAGECOACH_COMMON_WIRE_HANDSHAKE_H_

// The first thing ranks say to each other, and whether the world they form can be a job.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_choices.h"
#include "common/wire/frame.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"
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

// "runs version 0.2.0 (protocol 4), the coordinator runs ..." for another version; otherwise empty.
std::string OtherVersion(const pb::Hello& hello, const pb::Hello& coordinator);

// Exactly rank 0 coordinates; the others, at least one, are stages; all have one version; every stage names its
// instruction sets. Else kFailedPrecondition: what was started, and what to start instead.
absl::Status CheckWorld(const std::vector<pb::Hello>& hellos);

JobEpoch EpochOf(const pb::StageAssignment& assignment);

// What coordinator and stages both know of a job's frames. `wire_type` of the assignment must be valid.
FrameLimits LimitsOf(const pb::StageAssignment& assignment, int64_t hidden, int64_t vocab);

// "stage 1 on node7": how a stage is named in every message.
std::string StageName(int stage, const std::string& host);

// Bit classes: all stages of a job have the BF16 dot or none has, so that answers keep their bits.

// What a job was told or has settled on. Both absent: to be chosen.
struct WantedIsa {
  std::optional<InstructionSet> isa;  // of every stage
  std::optional<bool> bf16_dot;       // the bit class
};

// What a job was told; its choices are known ones.
WantedIsa WantedIsaOf(const pb::ConfigureJob& job);

// The best set of this rank that suits; absent when it has none.
std::optional<InstructionSet> BestIsa(const pb::Hello& hello, const WantedIsa& wanted);

// Why BestIsa has none: "has scalar, avx2 and not avx512-bf16", "has avx2 at best and not the BF16 dot ...".
std::string WhyNoIsa(const pb::Hello& hello, const WantedIsa& wanted);

struct StageIsas {
  bool bf16_dot = false;
  std::vector<InstructionSet> isas;  // by stage
};

// For the stages of a job, by default with the dot if all have it. kFailedPrecondition: the first stage without a set.
absl::StatusOr<StageIsas> ChooseIsas(const std::vector<pb::Hello>& stages, WantedIsa wanted);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_HANDSHAKE_H_
