// Throughput of every kernel, and of packing weights at load, by instruction set, on one thread. Prints VALID or
// INVALID for each instruction set against the scalar kernels before any number (an invalid one ends the program), and
// the ceilings of this machine that the numbers are shares of. GOP/s counts a multiply-add as two. Times are CPU time.
//
//   kernel_bench [--benchmark_filter=matmul/avx512-vnni/Q4_K] ...
//
// matmul/ISA/TYPE/decode:1        one input row, weights from memory: bound by the read bandwidth
// matmul/ISA/TYPE/batch:4 ... :32   as many input rows, weights from memory
// matmul/ISA/TYPE/experts:1 ... :32   as many, over matrices of 768 rows in that memory that are visited in a random
//                                 order, each of which is told where the next one lies: the rows of an expert
// matmul/ISA/TYPE/cached:1, :8, :32   as many input rows, weights that a core's cache holds: bound by arithmetic alone
// matmul/ISA/TYPE/prefill:256     a chunk of a prompt, weights that fit a cache: bound by the multiply-adds
// attend/ISA/KV/columns:C         C query heads over one granule that fits a cache
// attend/ISA/KV/memory            four query heads over a context from memory
// pack/ISA/TYPE                   pack_panel alone: from a piece that was just read, as the loader has it, into memory
// load/ISA/TYPE                   LoadStageWeights: a file that the page cache holds is read and packed into new memory
// cold/ISA/TYPE                   the same from the disk, beside reading alone; by the clock

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/model/model_description.h"
#include "common/quant/supported_types.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/weights/matrix_loader.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/bench/measuring.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr int64_t kCols = 2048;
constexpr int64_t kPackedCols = 4096;
constexpr size_t kPieceBytes = MatrixLoader::kPieceBytes;
constexpr size_t kPackedBytes = size_t{256} << 20;
constexpr size_t kFileBytes = size_t{128} << 20;    // about
constexpr size_t kMemoryBytes = size_t{128} << 20;  // more than the caches hold
constexpr size_t kCacheBytes = size_t{2} << 20;
constexpr size_t kCoreBytes = size_t{256} << 10;
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

// Times the calls of one benchmark by CPU time of the process, for counters that are plain numbers.
class Stopwatch {
 public:
  explicit Stopwatch(benchmark::State* state) : state_(state) {}

  // Calls `call` as often as the library wants.
  template <typename Call>
  void Time(Call call) {
    const double begin = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
    for (auto _ : *state_) {
      call();
      benchmark::ClobberMemory();
    }
    seconds_ =
        (SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - begin) / static_cast<double>(std::max<int64_t>(state_->iterations(), 1));
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
  if (bytes != kCacheBytes) watch.CountBytes(static_cast<double>(matrix.packed.size()), subject.peaks.read_gbps);
}

// The memory as experts of 768 rows, each of which is somewhere else.
void MatmulOfExperts(benchmark::State& state, const Subject& subject, TensorType type, int columns) {
  constexpr int64_t kPanels = 48;
  const Matrix& matrix = MatrixOf(type, kMemoryBytes);
  const InputRows inputs(*subject.kernels, kMaxColumns * kCols);
  std::vector<int64_t> order(static_cast<size_t>(matrix.span.panels / kPanels));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<float> out(static_cast<size_t>(columns * kPanels * kPanelRows));
  const size_t bytes = static_cast<size_t>(kPanels) * PanelBytes(type, kCols);
  Stopwatch watch(&state);
  watch.Time([&] {
    for (size_t i = 0; i < order.size(); ++i) {
      const auto panels_of = [&](size_t at) { return matrix.packed.data() + static_cast<size_t>(order[at]) * bytes; };
      const PanelSpan span = {type, panels_of(i), kPanels, kCols, panels_of((i + 1) % order.size())};
      subject.kernels->matmul(span, inputs.View(kCols), columns, out.data(), kPanels * kPanelRows);
    }
  });
  watch.CountBytes(static_cast<double>(order.size() * bytes), subject.peaks.read_gbps);
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
    constexpr size_t kTiles = kAttentionGranule / kTilePositions;
    const size_t first = static_cast<size_t>(granule) * kTiles, next = (first + kTiles) % k_tiles.size();
    return {type, kHeadDim, kHeadDim, &k_tiles[first], &v_tiles[first], kAttentionGranule, &k_tiles[next]};
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

void Pack(benchmark::State& state, const Kernels& kernels, TensorType type) {
  const size_t row_bytes = RowBytes(type, kPackedCols), panel_bytes = PanelBytes(type, kPackedCols);
  const size_t panels = std::max<size_t>(1, kPieceBytes / (kPanelRows * row_bytes));
  const size_t rows = panels * kPanelRows, piece_bytes = panels * panel_bytes;
  std::vector<uint8_t> file(rows * row_bytes);
  for (size_t r = 0; r < rows; ++r) FillRandomRow(type, kPackedCols, r, 0.02f, &file[r * row_bytes]);
  PageMemory memory = PageMemory::Allocate(std::max(kPackedBytes, piece_bytes), "packed weights").value();
  std::memset(memory.data(), 0, memory.size());
  size_t at = 0;
  Stopwatch watch(&state);
  watch.Time([&] {
    if (at + piece_bytes > memory.size()) at = 0;
    for (size_t p = 0; p < panels; ++p) {
      kernels.pack_panel(type, &file[p * kPanelRows * row_bytes], row_bytes, kPanelRows, kPackedCols,
                         memory.data() + at);
      at += panel_bytes;
    }
  });
  watch.CountBytes(static_cast<double>(file.size()), 0);
}

// A model of one type in a file, of which nothing is on a disk any more when it goes.
struct ModelFile {
  testing::TempDir dir;
  std::shared_ptr<const ModelDescription> model;

  explicit ModelFile(TensorType type) {
    testing::TinyModelOptions options;
    options.hidden = 1024;
    options.heads = 8;
    options.kv_heads = 4;
    options.head_dim = 128;
    options.ffn = 3072;
    options.vocab = 512;
    options.type = type;
    // A layer has 12.6 million weights.
    options.layers = std::max<int64_t>(1, static_cast<int64_t>(kFileBytes / (RowBytes(type, 3072) * 4096)));
    model = OpenModel(testing::WriteTinyModel(dir.File("model.gguf"), options)).value();
  }
};

// The one that the last benchmark used is kept for the next.
const ModelDescription& ModelOf(TensorType type) {
  static std::unique_ptr<ModelFile> last;
  static TensorType last_type;
  if (last == nullptr || last_type != type) {
    last.reset();
    last = std::make_unique<ModelFile>(type);
    last_type = type;
  }
  return *last->model;
}

// The whole model as one stage with one thread. Returns how many bytes it has read.
uint64_t LoadAll(const ModelDescription& model, const Kernels& kernels) {
  Gang gang(1, {});
  const StageWeightsRequest request = {.first_layer = 0,
                                       .last_layer = model.hyper.layer_count(),
                                       .owns_embedding = true,
                                       .owns_head = true,
                                       .gang = &gang};
  std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
  LoadStageWeights(model, request, kernels, &to_load, &touched, &loaded).value();
  return loaded;
}

void Load(benchmark::State& state, const Kernels& kernels, TensorType type) {
  const ModelDescription& model = ModelOf(type);
  uint64_t bytes = 0;
  Stopwatch watch(&state);
  watch.Time([&] { bytes = LoadAll(model, kernels); });
  watch.CountBytes(static_cast<double>(bytes), 0);
}

// Only pages that are on the disk already can be dropped.
void DropFromPageCache(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  fdatasync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

void ReadAll(const std::string& path) {
  std::vector<char> piece(kPieceBytes);
  const int file = open(path.c_str(), O_RDONLY);
  while (read(file, piece.data(), piece.size()) > 0) {
  }
  close(file);
}

void ColdLoad(benchmark::State& state, const Kernels& kernels, TensorType type) {
  const ModelDescription& model = ModelOf(type);
  const std::string& path = model.file->path();
  double reading = 0, loading = 0, bytes = 0;
  for (auto _ : state) {
    DropFromPageCache(path);
    const double begin = WallSeconds();
    ReadAll(path);
    reading += WallSeconds() - begin;
    DropFromPageCache(path);
    const double begin_load = WallSeconds();
    bytes += static_cast<double>(LoadAll(model, kernels));
    loading += WallSeconds() - begin_load;
  }
  state.counters["GB/s"] = bytes * 1e-9 / loading;
  state.counters["reading_GB/s"] = bytes * 1e-9 / reading;
}

template <typename Body>
void Register(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body);
}

// By type first, so that a matrix and a model are made once for all instruction sets.
void RegisterAll(const std::vector<Subject>& subjects) {
  for (TensorType type : SupportedTypes()) {
    for (const auto& [bytes, all_columns] : {std::pair(kMemoryBytes, std::vector<int>{1, 4, 6, 8, 16, 32}),
                                             {kCoreBytes, {1, 8, 32}},
                                             {kCacheBytes, {kMaxColumns}}}) {
      for (const Subject& subject : subjects) {
        const bool scalar = std::strcmp(subject.kernels->isa, "scalar") == 0;
        for (int columns : all_columns) {
          if (scalar && columns > 8) continue;  // a matter of minutes
          const char* shape = bytes == kCoreBytes ? "cached" : columns == 1 ? "decode" : "batch";
          if (columns == kMaxColumns) shape = "prefill";
          Register(
              absl::StrCat("matmul/", subject.kernels->isa, "/", GetTensorType(type).name, "/", shape, ":", columns),
              [=, bytes = bytes](benchmark::State& state) { Matmul(state, subject, type, columns, bytes); });
        }
        for (int columns : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
          if (bytes != kMemoryBytes || (scalar && columns > 8)) continue;
          Register(absl::StrCat("matmul/", subject.kernels->isa, "/", GetTensorType(type).name, "/experts:", columns),
                   [=](benchmark::State& state) { MatmulOfExperts(state, subject, type, columns); });
        }
      }
    }
  }
  for (TensorType type : SupportedTypes()) {
    for (const auto& [what, body] : {std::pair("pack", &Pack), {"load", &Load}, {"cold", &ColdLoad}}) {
      for (const Subject& subject : subjects) {
        Register(absl::StrCat(what, "/", subject.kernels->isa, "/", GetTensorType(type).name),
                 [=, run = body](benchmark::State& state) { run(state, *subject.kernels, type); });
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
