#ifndef STAGECOACH_STAGE_WORKER_MACHINE_PEAKS_H_
#define STAGECOACH_STAGE_WORKER_MACHINE_PEAKS_H_

// The ceilings of this machine, measured: what bounds a stage, and what its speed is a share of.

#include <vector>

#include "absl/status/statusor.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

struct MachinePeaks {
  int threads = 0;       // that worked at once; the numbers are of all of them together
  double read_gbps = 0;  // 10^9 bytes a second, from memory in huge pages that each thread touched first
  double int8_gops = 0;  // 10^9 operations a second, a multiply-add of one element counts as two
  double bf16_gops = 0;  // 0 where the kernels have no dot instruction for it
  double f32_gops = 0;
};

// Where and beside whom a measurement runs.
struct PeakSetting {
  std::vector<int> cpus;   // as of a Gang
  bool contended = false;  // as of a Gang
  int processes = 1;       // that measure at the same moment: they share the memory that is read
};

// The peaks of the instruction set of these kernels with `threads` threads, from several short runs: reading by the
// clock (one thread by CPU time), multiply-adds by CPU time. The best run of a process alone; beside others the median
// one of reading, because its first and last may have memory for themselves. About half a second in all.
// kResourceExhausted when memory or threads are not to be had.
absl::StatusOr<MachinePeaks> MeasurePeaks(const Kernels& kernels, int threads, const PeakSetting& setting = {});

// Which of the peaks bounds a matrix of this type, by its name in the struct: "int8", "bf16" or "f32".
const char* PeakNameOf(const Kernels& kernels, TensorType type);
double PeakGopsOf(const MachinePeaks& peaks, const Kernels& kernels, TensorType type);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MACHINE_PEAKS_H_
