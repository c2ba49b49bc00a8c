#include "tests/testing/random_tensors.h"

#include <cmath>
#include <numbers>

#include "common/base/counter_rng.h"

namespace stagecoach::testing {
namespace {

uint64_t StreamOf(uint64_t seed, absl::string_view name) {
  uint64_t hash = 0;
  for (const char c : name) hash = MixBits(hash ^ static_cast<uint8_t>(c)) + 1;
  return MixBits(seed) ^ hash;
}

}  // namespace

// By the Box-Muller transform.
std::vector<float> NormalValues(uint64_t seed, absl::string_view name, int64_t count, double mean, double deviation) {
  const uint64_t stream = StreamOf(seed, name);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - UniformAt(stream, 2 * i)));
    const double angle = 2 * std::numbers::pi * UniformAt(stream, 2 * i + 1);
    values[i] = static_cast<float>(mean + deviation * radius * std::cos(angle));
  }
  return values;
}

std::string RandomBlocks(uint64_t seed, absl::string_view name, TensorType type, int64_t rows, int64_t cols,
                         double magnitude) {
  const size_t row_bytes = RowBytes(type, cols);
  std::string bytes(row_bytes * static_cast<size_t>(rows), '\0');
  const uint64_t stream = StreamOf(seed, name);
  for (int64_t row = 0; row < rows; ++row) {
    FillRandomRow(type, cols, stream + static_cast<uint64_t>(row), static_cast<float>(magnitude),
                  reinterpret_cast<uint8_t*>(bytes.data()) + row_bytes * static_cast<size_t>(row));
  }
  return bytes;
}

}  // namespace stagecoach::testing
