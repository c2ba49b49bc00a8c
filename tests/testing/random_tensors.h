#ifndef STAGECOACH_TESTS_TESTING_RANDOM_TENSORS_H_
#define STAGECOACH_TESTS_TESTING_RANDOM_TENSORS_H_

// Random weights for models that tests write: what a tensor holds depends on the seed and its name only, so that
// leaving one out or adding another changes no third one.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/quant/tensor_type.h"

namespace stagecoach::testing {

// Nearly normally distributed, within 3.5 deviations of the mean.
std::vector<float> NormalValues(uint64_t seed, absl::string_view name, int64_t count, double mean, double deviation);

// [rows][cols] of a type that nothing here can encode: random valid blocks whose values have about this root mean
// square.
std::string RandomBlocks(uint64_t seed, absl::string_view name, TensorType type, int64_t rows, int64_t cols,
                         double magnitude);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_RANDOM_TENSORS_H_
