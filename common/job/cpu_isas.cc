// On x86 __builtin_cpu_supports asks cpuid, and XGETBV for what the operating system saves; on Arm the kernel says it.

#include "common/job/job_choices.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stagecoach {
#if defined(__x86_64__)
namespace {

// clang-tidy's clang does not know the names of these two. What AVX2 needs of the operating system is all that F16C
// needs.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool HasAvxVnni() {
  constexpr unsigned kAvxVnniBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnniBit) != 0;
}

}  // namespace
#endif

std::vector<InstructionSet> CpuInstructionSets() {
  std::vector<InstructionSet> sets = {InstructionSet::kScalar};
#if defined(__x86_64__)
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c())) return sets;
  sets.push_back(InstructionSet::kAvx2);
  if (HasAvxVnni()) sets.push_back(InstructionSet::kAvxVnni);
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
