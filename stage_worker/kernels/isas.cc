// Which instruction sets this program has kernels for, and which of them this machine can run.

#include <algorithm>
#include <vector>

#include "common/job/cpu_isas.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {

std::vector<Isa> ListIsas() {
  const std::vector<InstructionSet> cpu = CpuInstructionSets();
  std::vector<Isa> isas;
  for (const Kernels* kernels : {
         &kScalarKernels,
#if defined(__x86_64__)
             &kAvx2Kernels, &kAvx512Kernels, &kAvx512VnniKernels, &kAvx512Bf16Kernels,
#elif defined(__aarch64__)
           &kNeonKernels, &kNeonI8mmKernels,
#endif
       }) {
    const bool available = std::any_of(cpu.begin(), cpu.end(), [kernels](InstructionSet set) {
      return kernels->isa == absl::string_view(InstructionSetName(set));
    });
    isas.push_back({kernels, available});
  }
  return isas;
}

}  // namespace stagecoach
