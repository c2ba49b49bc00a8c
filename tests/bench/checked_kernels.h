#ifndef STAGECOACH_TESTS_BENCH_CHECKED_KERNELS_H_
#define STAGECOACH_TESTS_BENCH_CHECKED_KERNELS_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "stage_worker/check/kernel_check.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"

namespace stagecoach {

// The kernels of every instruction set that this machine has. Prints VALID or INVALID for each, checked against the
// scalar ones, and what it could not run; an invalid one ends the program.
inline std::vector<const Kernels*> CheckedKernels() {
  std::vector<const Kernels*> checked;
  for (const std::string& isa : std::vector<std::string>(absl::StrSplit(KnownIsas(), ", "))) {
    const auto kernels = SelectKernels(isa);
    if (!kernels.ok()) {
      std::printf("%s: NOT RUN: %s\n", isa.c_str(), std::string(kernels.status().message()).c_str());
      continue;
    }
    const KernelCheck check = CheckKernels(**kernels);
    std::printf("%s: %s\n", isa.c_str(), check.valid() ? "VALID" : "INVALID");
    for (const std::string& difference : check.differences) std::printf("  %s\n", difference.c_str());
    if (!check.valid()) std::exit(1);
    checked.push_back(*kernels);
  }
  std::fflush(stdout);
  return checked;
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_BENCH_CHECKED_KERNELS_H_
