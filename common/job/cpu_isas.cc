// On x86 __builtin_cpu_supports asks cpuid, and XGETBV for what the operating system saves; on Arm the kernel says it.

#include "common/job/cpu_isas.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace stagecoach {

std::vector<InstructionSet> CpuInstructionSets() {
  std::vector<InstructionSet> sets = {InstructionSet::kScalar};
#if defined(__x86_64__)
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))) return sets;
  sets.push_back(InstructionSet::kAvx2);
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))) {
    return sets;
  }
  sets.push_back(InstructionSet::kAvx512);
  if (!__builtin_cpu_supports("avx512vnni")) return sets;
  sets.push_back(InstructionSet::kAvx512Vnni);
  if (__builtin_cpu_supports("avx512bf16")) sets.push_back(InstructionSet::kAvx512Bf16);
#elif defined(__aarch64__)
  // HWCAP_ATOMICS stands for the rest of Armv8.1, for which the units are compiled as well.
  const unsigned long dotprod = HWCAP_ASIMDDP | HWCAP_ATOMICS | HWCAP_ASIMDRDM;
  if ((getauxval(AT_HWCAP) & dotprod) != dotprod) return sets;
  sets.push_back(InstructionSet::kNeonDotprod);
  if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) sets.push_back(InstructionSet::kNeonI8mm);
#endif
  return sets;
}

}  // namespace stagecoach
