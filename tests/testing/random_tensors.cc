#include "tests/testing/random_tensors.h"

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

// The sum of four even distributions, each of 16 bits: within 3.5 deviations, and without a logarithm and a cosine for
// each value, which were a fourth of the time of the tests that write models.
std::vector<float> NormalValues(uint64_t seed, absl::string_view name, int64_t count, double mean, double deviation) {
  const uint64_t stream = StreamOf(seed, name);
  const double scale = deviation * std::numbers::sqrt3 / 65536;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = MixBits(stream + (i + 1) * 0x9e3779b97f4a7c15ull);
    const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    values[i] = static_cast<float>(mean + scale * (static_cast<double>(sum) - 2 * 65535.0));
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
