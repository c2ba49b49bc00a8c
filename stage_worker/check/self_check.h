#ifndef STAGECOACH_STAGE_WORKER_SELF_CHECK_H_
#define STAGECOACH_STAGE_WORKER_SELF_CHECK_H_

// Whether the kernels are right on this machine, and how fast the machine is at best. `stage_worker --check-kernels`
// reports both, in one process without MPI.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

struct KernelCheck {
  int64_t comparisons = 0;
  std::vector<std::string> differences;  // at most one a kernel and type

  bool valid() const { return differences.empty(); }
};

// Runs every kernel on random inputs of a few shapes and compares it with its scalar twin: matrix kernels on every
// supported type, attention on every KV type. Equal means bit for bit; the bfloat16 dot must keep the bound that
// kernels.h states. Takes well under a second.
KernelCheck CheckKernels(const Kernels& kernels);

// Measured ceilings of this machine. A stage's speed is reported as a share of them.
struct MachinePeaks {
  int threads = 0;       // that worked at once; the figures below are of all of them together
  double read_gbps = 0;  // 10^9 bytes a second, from memory in huge pages that each thread touched first
  double int8_gops = 0;  // 10^9 operations a second; a multiply-add of one element counts as two
  double bf16_gops = 0;  // 0 where the kernels have no dot instruction for it
  double f32_gops = 0;
};

struct PeakSetting {
  std::vector<int> cpus;   // as of a Gang
  bool contended = false;  // as of a Gang
  int processes = 1;       // that measure at the same time and share the memory bandwidth
};

// Measures the peaks of these kernels' instruction set with `threads` threads, in about half a second.
//   Reading      wall-clock time; CPU time with one thread. The best run of a process alone; beside other processes the
//                median, because the first and the last run may have the memory to themselves.
//   Arithmetic   CPU time; the best run.
//   Errors       kResourceExhausted: no memory or no threads.
absl::StatusOr<MachinePeaks> MeasurePeaks(const Kernels& kernels, int threads, const PeakSetting& setting = {});

// Which peak bounds a matrix of this type, by its name in the struct: "int8", "bf16" or "f32".
const char* PeakNameOf(const Kernels& kernels, TensorType type);
double PeakGopsOf(const MachinePeaks& peaks, const Kernels& kernels, TensorType type);

// Arguments: [--isa NAME] [--threads N,N,...]; default: the best instruction set; 1 and all allowed cores. A higher
// number of threads is lowered to the allowed cores. kInvalidArgument for anything else. Returns one line of JSON:
//   {"valid": true, "isa": "avx2", "cpu": "...", "comparisons": 210, "differences": [],
//    "peak_of_type": {"Q8_0": "int8", ...},
//    "peaks": [{"threads": 1, "read_gbps": .., "int8_gops": .., "bf16_gops": .., "f32_gops": ..}, ...]}
// `peaks` is empty when `valid` is false.
absl::StatusOr<std::string> SelfCheck(const std::vector<std::string>& arguments);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_SELF_CHECK_H_
