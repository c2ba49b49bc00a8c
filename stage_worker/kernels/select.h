#ifndef STAGECOACH_STAGE_WORKER_KERNELS_SELECT_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_SELECT_H_

// The choice of kernels.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_choices.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// The kernels of this instruction set, without one the best that this machine has. kFailedPrecondition when this CPU
// lacks it.
absl::StatusOr<const Kernels*> SelectKernels(std::optional<InstructionSet> isa);
// By name, where "auto" and "" are the best. kInvalidArgument (with the list) for an unknown name.
absl::StatusOr<const Kernels*> SelectKernels(absl::string_view isa);
std::vector<InstructionSet> AvailableInstructionSets();  // of this machine, the best last
std::string AvailableIsas();                             // "scalar, avx2": of this machine, ascending
std::string KnownIsas();                                 // of this family of processors

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_SELECT_H_
