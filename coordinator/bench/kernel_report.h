#ifndef STAGECOACH_COORDINATOR_BENCH_KERNEL_REPORT_H_
#define STAGECOACH_COORDINATOR_BENCH_KERNEL_REPORT_H_

// What the stage program says of its kernels and of this host's ceilings.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_choices.h"

namespace stagecoach {

// The peaks of one host with so many threads, in 10^9 bytes and operations a second; a multiply-add counts as two.
struct HostPeaks {
  int64_t threads = 0;
  double read_gbps = 0;
  std::map<std::string, double> gops;  // by "int8", "bf16", "f32"
};

// What `stage_worker --check-kernels` said of this host.
struct KernelReport {
  bool valid = false;
  std::string isa;
  std::string cpu;
  int64_t comparisons = 0;
  std::vector<std::string> differences;
  std::map<std::string, std::string> peak_of_type;  // "Q8_0" -> "int8"
  std::vector<HostPeaks> peaks;                     // by ascending threads

  // nullptr when none are of so many threads.
  const HostPeaks* PeaksOf(int64_t threads) const;
};
absl::StatusOr<KernelReport> ParseKernelReport(const std::string& json);

// Runs the stage program's check on this host, which takes a second or two. kFailedPrecondition when it cannot run or
// this host lacks the instruction set.
absl::StatusOr<KernelReport> CheckKernelsOfHost(const std::string& stage_worker, std::optional<InstructionSet> isa,
                                                const std::vector<int64_t>& threads);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_KERNEL_REPORT_H_
