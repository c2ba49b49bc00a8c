// Which instruction sets this program has kernels for, and which of them this machine can run: on x86
// __builtin_cpu_supports asks cpuid, and XGETBV for what the operating system saves; on Arm the kernel says it.

#include <vector>

#include "stage_worker/kernels/isa_tables.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace stagecoach {
namespace {

#if defined(__x86_64__)
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

bool HasAvx512Bf16() { return HasAvx512Vnni() && __builtin_cpu_supports("avx512bf16"); }
#elif defined(__aarch64__)
// HWCAP_ATOMICS stands for the rest of Armv8.1, for which the units are compiled as well.
bool HasNeonDotprod() {
  const unsigned long needed = HWCAP_ASIMDDP | HWCAP_ATOMICS | HWCAP_ASIMDRDM;
  return (getauxval(AT_HWCAP) & needed) == needed;
}

bool HasNeonI8mm() { return HasNeonDotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#endif

}  // namespace

std::vector<Isa> ListIsas() {
  return {
    {&kScalarKernels, true},
#if defined(__x86_64__)
        {&kAvx2Kernels, HasAvx2()}, {&kAvx512Kernels, HasAvx512()}, {&kAvx512VnniKernels, HasAvx512Vnni()},
        {&kAvx512Bf16Kernels, HasAvx512Bf16()},
#elif defined(__aarch64__)
        {&kNeonKernels, HasNeonDotprod()}, {&kNeonI8mmKernels, HasNeonI8mm()},
#endif
  };
}

}  // namespace stagecoach
