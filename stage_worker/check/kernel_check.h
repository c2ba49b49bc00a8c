#ifndef STAGECOACH_STAGE_WORKER_KERNEL_CHECK_H_
#define STAGECOACH_STAGE_WORKER_KERNEL_CHECK_H_

// Whether kernels do what the scalar ones do, on this very machine: what must hold before any speed of theirs means
// something. Takes well under a second.

#include <cstdint>
#include <string>
#include <vector>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

struct KernelCheck {
  int64_t comparisons = 0;
  std::vector<std::string> differences;  // what differs, at most one entry a kernel and type

  bool valid() const { return differences.empty(); }
};

// Runs every kernel on random inputs of a few shapes, the matrix kernels on every supported type and attention on every
// KV type, and compares with the scalar kernels: bit for bit, but for the bfloat16 dot, where it holds the bound that
// kernels.h states.
KernelCheck CheckKernels(const Kernels& kernels);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNEL_CHECK_H_
