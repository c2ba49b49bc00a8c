// Throughput of every kernel, by instruction set, on one thread. Prints VALID or INVALID for each instruction set
// against the scalar kernels before any number (an invalid one ends the program), and the ceilings of this machine that
// the numbers are shares of. GOP/s counts a multiply-add as two. Times are CPU time.
//
//   kernel_bench [--benchmark_filter=matmul/avx512-vnni/Q4_K] ...
//
// matmul/ISA/TYPE/decode:1        one input row, weights from memory: bound by the read bandwidth
// matmul/ISA/TYPE/batch:4 ... :32   as many input rows, weights from memory
// matmul/ISA/TYPE/prefill:256     a chunk of a prompt, weights that fit a cache: bound by the multiply-adds
// attend/ISA/KV/columns:C         C query heads over one granule that fits a cache
// attend/ISA/KV/memory            four query heads over a context from memory

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/quant/supported_types.h"
#include "stage_worker/check/machine_peaks.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

constexpr int64_t kCols = 2048;
constexpr size_t kMemoryBytes = size_t{128} << 20;  // more than the caches hold
constexpr size_t kCacheBytes = size_t{2} << 20;
constexpr int kMaxColumns = 256;
constexpr int kHeadDim = 128;
constexpr int64_t kRowLength = 4096;
constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};

// An instruction set with what bounds it.
struct Subject {
  const Kernels* kernels;
  MachinePeaks peaks;
};

std::vector<float> RandomFloats(uint64_t seed, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * UniformAt(seed, i) - 1);
  return values;
}

// Times the calls of one benchmark by CPU time, for counters that are plain numbers.
class Stopwatch {
 public:
  explicit Stopwatch(benchmark::State* state) : state_(state) {}

  // Calls `call` as often as the library wants.
  template <typename Call>
  void Time(Call call) {
    const double begin = ThreadSeconds();
    for (auto _ : *state_) {
      call();
      benchmark::ClobberMemory();
    }
    seconds_ = (ThreadSeconds() - begin) / static_cast<double>(std::max<int64_t>(state_->iterations(), 1));
  }

  // Of one call.
  void CountOps(double ops, double peak_gops) {
    state_->counters["GOP/s"] = ops * 1e-9 / seconds_;
    if (peak_gops > 0) state_->counters["%peak"] = 100 * ops * 1e-9 / seconds_ / peak_gops;
  }
  void CountBytes(double bytes, double peak_gbps) {
    state_->counters["GB/s"] = bytes * 1e-9 / seconds_;
    if (peak_gbps > 0) state_->counters["%bw"] = 100 * bytes * 1e-9 / seconds_ / peak_gbps;
  }

 private:
  benchmark::State* const state_;
  double seconds_ = 0;
};

// A packed matrix of about so many bytes; the panels repeat, for what they hold does not matter.
struct Matrix {
  PageMemory packed;
  PanelSpan span;

  Matrix(TensorType type, size_t bytes) {
    constexpr int kDistinct = 4;
    const size_t panel_bytes = PanelBytes(type, kCols), row_bytes = RowBytes(type, kCols);
    const int64_t panels = std::max<int64_t>(kDistinct, static_cast<int64_t>(bytes / panel_bytes));
    packed = PageMemory::Allocate(static_cast<size_t>(panels) * panel_bytes, "a matrix").value();
    std::vector<uint8_t> file(kPanelRows * row_bytes);
    for (int64_t p = 0; p < panels; ++p) {
      uint8_t* panel = packed.data() + static_cast<size_t>(p) * panel_bytes;
      if (p >= kDistinct) {
        std::memcpy(panel, panel - kDistinct * panel_bytes, panel_bytes);
        continue;
      }
      for (int r = 0; r < kPanelRows; ++r) FillRandomRow(type, kCols, p * kPanelRows + r, 0.02f, &file[r * row_bytes]);
      SelectKernels("scalar").value()->pack_panel(type, file.data(), row_bytes, kPanelRows, kCols, panel);
    }
    span = {type, packed.data(), panels, kCols};
  }
};

// The one that the last benchmark used is kept for the next: panels are the same for all instruction sets.
const Matrix& MatrixOf(TensorType type, size_t bytes) {
  static std::unique_ptr<Matrix> last;
  static std::pair<TensorType, size_t> last_key;
  if (last == nullptr || last_key != std::pair(type, bytes)) {
    last.reset();
    last = std::make_unique<Matrix>(type, bytes);
    last_key = {type, bytes};
  }
  return *last;
}

void Matmul(benchmark::State& state, const Subject& subject, TensorType type, int columns, size_t bytes) {
  const Matrix& matrix = MatrixOf(type, bytes);
  const InputRows inputs(*subject.kernels, kMaxColumns * kCols);
  const int64_t rows = matrix.span.panels * kPanelRows;
  std::vector<float> out(static_cast<size_t>(columns * rows));
  Stopwatch watch(&state);
  watch.Time([&] { subject.kernels->matmul(matrix.span, inputs.View(kCols), columns, out.data(), rows); });
  watch.CountOps(2.0 * static_cast<double>(rows * kCols) * columns, PeakGopsOf(subject.peaks, *subject.kernels, type));
  if (bytes == kMemoryBytes) watch.CountBytes(static_cast<double>(matrix.packed.size()), subject.peaks.read_gbps);
}

// A cache of one KV head, of so many granules.
struct Cache {
  PageMemory bytes;
  std::vector<const uint8_t*> k_tiles, v_tiles;
  KvType type;

  Cache(const Kernels& kernels, KvType t, int64_t granules) : type(t) {
    const size_t tile_bytes = KvTileBytes(type, kHeadDim);
    const int64_t tiles = granules * (kAttentionGranule / kTilePositions);
    bytes = PageMemory::Allocate(2 * static_cast<size_t>(tiles) * tile_bytes, "a KV cache").value();
    const std::vector<float> values = RandomFloats(3, 2 * kTilePositions * kHeadDim);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      uint8_t* k_tile = bytes.data() + 2 * static_cast<size_t>(tile) * tile_bytes;
      k_tiles.push_back(k_tile);
      v_tiles.push_back(k_tile + tile_bytes);
      if (tile > 0) {
        std::memcpy(k_tile, bytes.data(), 2 * tile_bytes);
        continue;
      }
      for (int j = 0; j < kTilePositions; ++j) {
        kernels.store_k(type, &values[2 * j * kHeadDim], kHeadDim, j, k_tile);
        kernels.store_v(type, &values[(2 * j + 1) * kHeadDim], kHeadDim, j, k_tile + tile_bytes);
      }
    }
  }
  AttentionSpan Granule(int64_t granule) const {
    const int64_t first = granule * (kAttentionGranule / kTilePositions);
    return {type, kHeadDim, kHeadDim, &k_tiles[first], &v_tiles[first], kAttentionGranule};
  }
};

void Attend(benchmark::State& state, const Subject& subject, KvType type, int columns, int64_t granules) {
  const Kernels& kernels = *subject.kernels;
  const Cache cache(kernels, type, granules);
  const std::vector<float> q = RandomFloats(4, columns * kHeadDim);
  const std::vector<int32_t> limits(columns, kAttentionGranule);
  std::vector<float> max(columns), sum(columns), acc(columns * kHeadDim);
  Stopwatch watch(&state);
  watch.Time([&] {
    std::fill(max.begin(), max.end(), -INFINITY);
    std::fill(sum.begin(), sum.end(), 0.0f);
    std::fill(acc.begin(), acc.end(), 0.0f);
    for (int64_t granule = 0; granule < granules; ++granule) {
      kernels.attend(cache.Granule(granule), q.data(), kHeadDim, nullptr, limits.data(), columns,
                     {max.data(), sum.data(), acc.data()});
    }
  });
  watch.CountOps(4.0 * kAttentionGranule * kHeadDim * columns * static_cast<double>(granules), subject.peaks.f32_gops);
  if (granules > 1) watch.CountBytes(static_cast<double>(cache.bytes.size()), subject.peaks.read_gbps);
}

// The kernels of one row of floats: how many bytes of it they go through.
void RowKernel(benchmark::State& state, const Subject& subject, const std::string& name) {
  const Kernels& kernels = *subject.kernels;
  const std::vector<float> x = RandomFloats(5, kRowLength), y = RandomFloats(6, kRowLength);
  std::vector<float> out = RandomFloats(7, kRowLength), cosines(kRowLength), sines(kRowLength);
  for (size_t i = 0; i < kRowLength; ++i) cosines[i] = std::cos(x[i]), sines[i] = std::sin(x[i]);
  std::vector<int8_t> q(kRowLength);
  std::vector<int32_t> starts(kRowLength / 32), half_starts(kRowLength / 16);
  std::vector<uint16_t> bf16(kRowLength);
  std::vector<float> scales(kRowLength / 32);
  const std::map<std::string, std::function<void()>> calls = {
      {"quantize_row",
       [&] { kernels.quantize_row(x.data(), kRowLength, q.data(), scales.data(), starts.data(), half_starts.data()); }},
      {"round_row", [&] { kernels.round_row(x.data(), kRowLength, bf16.data()); }},
      {"rms_norm", [&] { kernels.rms_norm(x.data(), y.data(), kRowLength, 1e-6f, out.data()); }},
      {"swiglu", [&] { kernels.swiglu(x.data(), y.data(), kRowLength, out.data()); }},
      {"geglu", [&] { kernels.geglu(x.data(), y.data(), kRowLength, out.data()); }},
      {"clamped_swiglu", [&] { kernels.clamped_swiglu(x.data(), y.data(), kRowLength, 1.702f, 7.0f, out.data()); }},
      {"soft_cap", [&] { kernels.soft_cap(50.0f, kRowLength, out.data()); }},
      {"add", [&] { kernels.add(x.data(), kRowLength, out.data()); }},
      {"add_scaled", [&] { kernels.add_scaled(x.data(), 1e-9f, kRowLength, out.data()); }},
      {"rope",
       [&] {
         for (int64_t i = 0; i < kRowLength; i += kHeadDim)
           kernels.rope(&out[i], cosines.data(), sines.data(), kHeadDim, true);
       }},
      {"log_sum_exp", [&] { benchmark::DoNotOptimize(kernels.log_sum_exp(x.data(), kRowLength)); }},
  };
  Stopwatch watch(&state);
  watch.Time(calls.at(name));
  watch.CountBytes(kRowLength * sizeof(float), 0);
}

constexpr const char* kRowKernels[] = {"quantize_row", "round_row",      "rms_norm",   "swiglu",
                                       "geglu",        "clamped_swiglu", "soft_cap",   "add",
                                       "add_scaled",   "rope",           "log_sum_exp"};

template <typename Body>
void Register(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body);
}

// By type first, so that a matrix is made once for all instruction sets.
void RegisterAll(const std::vector<Subject>& subjects) {
  for (TensorType type : SupportedTypes()) {
    for (size_t bytes : {kMemoryBytes, kCacheBytes}) {
      for (const Subject& subject : subjects) {
        const bool scalar = std::strcmp(subject.kernels->isa, "scalar") == 0;
        for (int columns :
             bytes == kMemoryBytes ? std::vector<int>{1, 4, 6, 8, 16, 32} : std::vector<int>{kMaxColumns}) {
          if (scalar && columns > 8) continue;  // a matter of minutes
          const char* shape = columns == 1 ? "decode" : columns == kMaxColumns ? "prefill" : "batch";
          Register(
              absl::StrCat("matmul/", subject.kernels->isa, "/", GetTensorType(type).name, "/", shape, ":", columns),
              [=](benchmark::State& state) { Matmul(state, subject, type, columns, bytes); });
        }
      }
    }
  }
  for (const Subject& subject : subjects) {
    for (KvType type : kKvTypes) {
      const std::string name = absl::StrCat("attend/", subject.kernels->isa, "/", KvTypeName(type));
      for (int columns : {1, 2, 4, 8, 64}) {
        Register(absl::StrCat(name, "/columns:", columns),
                 [=](benchmark::State& state) { Attend(state, subject, type, columns, 1); });
      }
      const int64_t granules =
          static_cast<int64_t>(kMemoryBytes / 2 / KvTileBytes(type, kHeadDim)) * kTilePositions / kAttentionGranule;
      Register(name + "/memory", [=](benchmark::State& state) { Attend(state, subject, type, 4, granules); });
    }
    for (const char* name : kRowKernels) {
      Register(absl::StrCat(name, "/", subject.kernels->isa),
               [=](benchmark::State& state) { RowKernel(state, subject, name); });
    }
  }
}

int Main(int argc, char** argv) {
  std::vector<Subject> subjects;
  for (const Kernels* kernels : CheckedKernels()) {
    subjects.push_back({kernels, MeasurePeaks(*kernels, 1).value()});
    const MachinePeaks& peaks = subjects.back().peaks;
    std::printf("%s: one thread reads %.1f GB/s and does %.0f int8, %.0f bf16, %.0f f32 GOP/s\n", kernels->isa,
                peaks.read_gbps, peaks.int8_gops, peaks.bf16_gops, peaks.f32_gops);
  }
  std::fflush(stdout);
  RegisterAll(subjects);
  std::vector<char*> arguments(argv, argv + argc);
  std::string brief = "--benchmark_min_time=0.1";  // the user's own comes later and counts
  arguments.insert(arguments.begin() + 1, brief.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
