#ifndef STAGECOACH_COMMON_WIRE_BIT_CLASS_H_
#define STAGECOACH_COMMON_WIRE_BIT_CLASS_H_

// Which instruction sets the stages of a job may compute with, so that its answers keep their bits: all with the BF16
// dot, or all without. Pure functions.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_choices.h"
#include "proto/control.pb.h"
#include "proto/engine.pb.h"

namespace stagecoach {

// What a job was told or has settled on. Both absent: to be chosen.
struct WantedIsa {
  std::optional<InstructionSet> isa;  // of every stage
  std::optional<bool> bf16_dot;       // the bit class
};

// What a job was told; its choices are known ones.
WantedIsa WantedIsaOf(const pb::ConfigureJob& job);

// The best set of this rank that suits; absent when it has none.
std::optional<InstructionSet> BestIsa(const pb::Hello& hello, const WantedIsa& wanted);

// Why BestIsa has none: "has scalar, avx2 and not avx512-bf16", "has avx2 at best and not the BF16 dot of the first
// launch".
std::string WhyNoIsa(const pb::Hello& hello, const WantedIsa& wanted);

struct StageIsas {
  bool bf16_dot = false;
  std::vector<InstructionSet> isas;  // by stage
};

// Chooses for the stages of a job. When nothing is wanted, the dot is taken where every stage has it.
// kFailedPrecondition names the first stage that has no set that suits.
absl::StatusOr<StageIsas> ChooseIsas(const std::vector<pb::Hello>& stages, WantedIsa wanted);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_WIRE_BIT_CLASS_H_
