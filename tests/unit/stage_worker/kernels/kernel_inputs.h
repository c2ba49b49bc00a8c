#ifndef STAGECOACH_TESTS_UNIT_KERNELS_KERNEL_INPUTS_H_
#define STAGECOACH_TESTS_UNIT_KERNELS_KERNEL_INPUTS_H_

// Random inputs of the kernels, and exact comparison of their outputs.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

inline const Kernels& Scalar() { return kScalarKernels; }

// The vectorised kernels that this machine can run. Those that it cannot are named once on stderr.
inline std::vector<const Kernels*> VectorKernels() {
  static bool told = false;
  std::vector<const Kernels*> found;
  for (const Isa& isa : ListIsas()) {
    if (isa.available && isa.kernels != &kScalarKernels) found.push_back(isa.kernels);
    if (!isa.available && !told) std::fprintf(stderr, "NOT RUN: this CPU has no %s\n", isa.kernels->isa);
  }
  told = true;
  return found;
}

// Those and the scalar ones.
inline std::vector<const Kernels*> AllKernels() {
  std::vector<const Kernels*> all = VectorKernels();
  all.push_back(&Scalar());
  return all;
}

// Uniform in [-range, range).
inline std::vector<float> RandomFloats(uint64_t seed, size_t count, double range) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((2 * UniformAt(seed, i) - 1) * range);
  return values;
}

// Of both signs and of magnitudes from 10^low to 10^high.
inline std::vector<float> RandomMagnitudes(uint64_t seed, size_t count, double low, double high) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const double magnitude = std::pow(10.0, low + (high - low) * UniformAt(seed, 2 * i));
    values[i] = static_cast<float>(UniformAt(seed, 2 * i + 1) < 0.5 ? -magnitude : magnitude);
  }
  return values;
}

// "" when both hold the same bits, else where and what.
inline std::string FirstDifference(const float* expected, const float* found, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(expected + i, found + i, sizeof(float)) == 0) continue;
    return "element " + std::to_string(i) + " expected " + std::to_string(expected[i]) + " found " +
           std::to_string(found[i]) + ", a difference of " +
           std::to_string(static_cast<double>(expected[i]) - found[i]);
  }
  return "";
}

inline std::string FirstDifference(const std::vector<float>& expected, const std::vector<float>& found) {
  if (expected.size() != found.size()) return "sizes differ";
  return FirstDifference(expected.data(), found.data(), expected.size());
}

}  // namespace stagecoach

#define VECTOR_KERNELS_OR_SKIP(name)                        \
  const std::vector<const Kernels*> name = VectorKernels(); \
  if (name.empty()) GTEST_SKIP() << "this CPU runs the scalar kernels alone"

#endif  // STAGECOACH_TESTS_UNIT_KERNELS_KERNEL_INPUTS_H_
