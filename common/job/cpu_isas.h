#ifndef STAGECOACH_COMMON_JOB_CPU_ISAS_H_
#define STAGECOACH_COMMON_JOB_CPU_ISAS_H_

#include <vector>

#include "common/job/job_choices.h"

namespace stagecoach {

// The instruction sets that this machine can run, its operating system included; kScalar first, the best last. Never
// empty. Thread-safe.
std::vector<InstructionSet> CpuInstructionSets();

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_CPU_ISAS_H_
