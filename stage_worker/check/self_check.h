#ifndef STAGECOACH_STAGE_WORKER_SELF_CHECK_H_
#define STAGECOACH_STAGE_WORKER_SELF_CHECK_H_

// `stage_worker --check-kernels`: one process without MPI tells whether this machine's kernels are right, and what its
// ceilings are.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

// arguments: [--isa NAME] [--threads N,N,...]; default: the best instruction set; 1 and all allowed cores. More threads
// than allowed cores are measured as that many. kInvalidArgument for anything else. Returns one line of JSON:
//   {"valid": true, "isa": "avx2", "cpu": "...", "comparisons": 210, "differences": [],
//    "peak_of_type": {"Q8_0": "int8", ...},   which of the peaks bounds a matrix of that type
//    "peaks": [{"threads": 1, "read_gbps": .., "int8_gops": .., "bf16_gops": .., "f32_gops": ..}, ...]}
// `peaks` is empty when `valid` is false.
absl::StatusOr<std::string> SelfCheck(const std::vector<std::string>& arguments);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SELF_CHECK_H_
