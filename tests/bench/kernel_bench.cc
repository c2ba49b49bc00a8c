// Throughput of the matrix kernels and of attention, by instruction set. Prints VALID or INVALID for each instruction
// set against the scalar kernels before any number; an invalid one ends the program. GOP/s counts a multiply-add as
// two.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/aligned_buffer.h"
#include "common/base/counter_rng.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

constexpr int64_t kCols = 1024;
constexpr int64_t kRows = 3072;
constexpr int kMaxColumns = 64;

std::vector<float> RandomFloats(uint64_t seed, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * UniformAt(seed, i) - 1);
  return values;
}

// A packed matrix of random numbers and as many input rows as the widest product takes.
struct Problem {
  AlignedBuffer packed;
  PanelSpan span;
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  Activations in;

  Problem(const Kernels& kernels, TensorType type)
      : packed(kRows / kPanelRows * PanelBytes(type, kCols)),
        x(RandomFloats(2, kMaxColumns * kCols)),
        q(x.size()),
        scales(x.size() / kActivationGroup),
        sums(scales.size()) {
    const std::vector<float> values = RandomFloats(1, kRows * kCols);
    const size_t row_bytes = RowBytes(type, kCols);
    std::vector<uint8_t> file(kRows * row_bytes);
    for (int64_t r = 0; r < kRows; ++r) QuantizeRow(type, &values[r * kCols], kCols, &file[r * row_bytes]);
    for (int64_t p = 0; p < kRows / kPanelRows; ++p) {
      kernels.pack_panel(type, &file[p * kPanelRows * row_bytes], row_bytes, kPanelRows, kCols,
                         packed.data() + p * PanelBytes(type, kCols));
    }
    kernels.quantize_row(x.data(), static_cast<int64_t>(x.size()), q.data(), scales.data(), sums.data());
    span = {type, packed.data(), kRows / kPanelRows, kCols};
    in = {x.data(), kCols, q.data(), scales.data(), sums.data()};
  }
};

void Matmul(benchmark::State& state, const Kernels* kernels, TensorType type, int columns) {
  const Problem problem(*kernels, type);
  std::vector<float> out(columns * kRows);
  for (auto _ : state) {
    kernels->matmul(problem.span, problem.in, columns, out.data(), kRows);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const double iterations = static_cast<double>(state.iterations());
  state.counters["GOP/s"] =
      benchmark::Counter(2e-9 * kRows * kCols * columns * iterations, benchmark::Counter::kIsRate);
  state.counters["weights_GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(problem.packed.size()) * iterations, benchmark::Counter::kIsRate);
}

// One granule of a cache of a KV head of 128 dimensions.
struct Cache {
  static constexpr int kHeadDim = 128;
  AlignedBuffer bytes;
  std::vector<const uint8_t*> k_tiles, v_tiles;
  AttentionSpan span;

  Cache(const Kernels& kernels, KvType type) : bytes(2 * kAttentionGranule * kHeadDim * KvTypeBytes(type)) {
    const size_t tile_bytes = kTilePositions * kHeadDim * KvTypeBytes(type);
    const std::vector<float> values = RandomFloats(3, 2 * kAttentionGranule * kHeadDim);
    for (int j = 0; j < kAttentionGranule; ++j) {
      uint8_t* k_tile = bytes.data() + j / kTilePositions * 2 * tile_bytes;
      kernels.store_kv(type, &values[2 * j * kHeadDim], &values[(2 * j + 1) * kHeadDim], kHeadDim, j % kTilePositions,
                       k_tile, k_tile + tile_bytes);
      if (j % kTilePositions != 0) continue;
      k_tiles.push_back(k_tile);
      v_tiles.push_back(k_tile + tile_bytes);
    }
    span = {type, kHeadDim, k_tiles.data(), v_tiles.data(), kAttentionGranule};
  }
};

std::vector<float> AttendOnce(const Kernels& kernels, const Cache& cache, const std::vector<float>& q, int columns) {
  const std::vector<int32_t> limits(columns, kAttentionGranule);
  std::vector<float> max(columns, -INFINITY), sum(columns), acc(columns * Cache::kHeadDim);
  kernels.attend(cache.span, q.data(), Cache::kHeadDim, limits.data(), columns, {max.data(), sum.data(), acc.data()});
  acc.insert(acc.end(), sum.begin(), sum.end());
  return acc;
}

void Attend(benchmark::State& state, const Kernels* kernels, KvType type, int columns) {
  const Cache cache(*kernels, type);
  const std::vector<float> q = RandomFloats(4, columns * Cache::kHeadDim);
  for (auto _ : state) benchmark::DoNotOptimize(AttendOnce(*kernels, cache, q, columns));
  state.counters["GOP/s"] =
      benchmark::Counter(4e-9 * kAttentionGranule * Cache::kHeadDim * columns * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr TensorType kTypes[] = {TensorType::kQ8_0, TensorType::kBF16, TensorType::kF16, TensorType::kF32};
constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kF32};

bool Valid(const Kernels& kernels) {
  const Kernels& scalar = *SelectKernels("scalar").value();
  for (TensorType type : kTypes) {
    const Problem problem(scalar, type);
    for (int columns : {1, 8, 11}) {
      std::vector<float> expected(columns * kRows), found(columns * kRows);
      scalar.matmul(problem.span, problem.in, columns, expected.data(), kRows);
      kernels.matmul(problem.span, problem.in, columns, found.data(), kRows);
      if (!SameBits(expected, found)) return false;
    }
  }
  for (KvType type : kKvTypes) {
    const Cache cache(scalar, type);
    const std::vector<float> q = RandomFloats(4, 8 * Cache::kHeadDim);
    for (int columns : {1, 4, 8}) {
      if (!SameBits(AttendOnce(scalar, cache, q, columns), AttendOnce(kernels, cache, q, columns))) return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  for (const std::string& isa : std::vector<std::string>(absl::StrSplit(AvailableIsas(), ", "))) {
    const Kernels* kernels = SelectKernels(isa).value();
    const bool valid = Valid(*kernels);
    std::printf("%s: %s\n", isa.c_str(), valid ? "VALID" : "INVALID");
    if (!valid) return 1;
    for (TensorType type : kTypes) {
      for (int columns : {1, 8, kMaxColumns}) {
        if (isa == "scalar" && columns == kMaxColumns) continue;
        benchmark::RegisterBenchmark(absl::StrCat("matmul/", isa, "/", GetTensorType(type).name, "/", columns).c_str(),
                                     [=](benchmark::State& state) { Matmul(state, kernels, type, columns); });
      }
    }
    for (KvType type : kKvTypes) {
      for (int columns : {1, 2, 4, 8, 64}) {
        benchmark::RegisterBenchmark(absl::StrCat("attend/", isa, "/", KvTypeName(type), "/", columns).c_str(),
                                     [=](benchmark::State& state) { Attend(state, kernels, type, columns); });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
