#ifndef STAGECOACH_TESTS_BENCH_KERNELS_CHECKED_KERNELS_H_
#define STAGECOACH_TESTS_BENCH_KERNELS_CHECKED_KERNELS_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "common/base/counter_rng.h"
#include "stage_worker/check/self_check.h"
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

// The kernels of one. Prints VALID or INVALID; an invalid one, and one that cannot run here, ends the program.
inline const Kernels& CheckedKernelsOf(const std::string& isa) {
  const absl::StatusOr<const Kernels*> kernels = SelectKernels(isa);
  if (!kernels.ok()) {
    std::fprintf(stderr, "%s\n", kernels.status().ToString().c_str());
    std::exit(2);
  }
  const bool valid = CheckKernels(**kernels).valid();
  std::printf("%s: %s\n", (*kernels)->isa, valid ? "VALID" : "INVALID");
  if (!valid) std::exit(1);
  return **kernels;
}

// Random input rows, one after another, in every form that the matrix kernels take.
class InputRows {
 public:
  InputRows(const Kernels& kernels, int64_t values)
      : x_(static_cast<size_t>(values)),
        q_(x_.size()),
        scales_(x_.size() / 32),
        starts_(x_.size() / 32),
        half_starts_(x_.size() / 16),
        bf16_(x_.size()) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(2 * UniformAt(2, i) - 1);
    kernels.quantize_row(x_.data(), values, q_.data(), scales_.data(), starts_.data(), half_starts_.data());
    kernels.round_row(x_.data(), values, bf16_.data());
  }
  Activations View(int64_t cols) const {
    Activations in;
    in.x = x_.data();
    in.x_stride = cols;
    in.q = q_.data();
    in.scales = scales_.data();
    in.starts = starts_.data();
    in.half_starts = half_starts_.data();
    in.bf16 = bf16_.data();
    return in;
  }

 private:
  std::vector<float> x_;
  std::vector<int8_t> q_;
  std::vector<float> scales_;
  std::vector<int32_t> starts_, half_starts_;
  std::vector<uint16_t> bf16_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_BENCH_KERNELS_CHECKED_KERNELS_H_
