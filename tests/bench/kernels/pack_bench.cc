// Packing weights at load: GB/s of the file's bytes a thread, for every type. Prints VALID or INVALID for each
// instruction set against the scalar kernels before any number (an invalid one ends the program). Times are CPU time.
//
//   pack_bench [--benchmark_filter=pack/avx2/Q4_K] ...
//
// pack/ISA/TYPE     pack_panel alone: from a piece that was just read, as the loader has it, into memory
// load/ISA/TYPE     LoadStageWeights with one thread: a file that the page cache holds is read and packed into new
// memory

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model_description.h"
#include "common/quant/supported_types.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/weights/matrix_loader.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/bench/measuring.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr int64_t kCols = 4096;
constexpr size_t kPieceBytes = MatrixLoader::kPieceBytes;
constexpr size_t kMemoryBytes = size_t{256} << 20;  // more than the caches hold
constexpr size_t kFileBytes = size_t{128} << 20;    // about

// Calls `call` as often as the library wants; it goes through `bytes` bytes of a file.
template <typename Call>
void Time(benchmark::State& state, size_t bytes, Call call) {
  const double begin = SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  const double seconds =
      (SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - begin) / static_cast<double>(std::max<int64_t>(state.iterations(), 1));
  state.counters["GB/s"] = static_cast<double>(bytes) * 1e-9 / seconds;
}

void Pack(benchmark::State& state, const Kernels& kernels, TensorType type) {
  const size_t row_bytes = RowBytes(type, kCols), panel_bytes = PanelBytes(type, kCols);
  const size_t panels = std::max<size_t>(1, kPieceBytes / (kPanelRows * row_bytes));
  const size_t rows = panels * kPanelRows, piece_bytes = panels * panel_bytes;
  std::vector<uint8_t> file(rows * row_bytes);
  for (size_t r = 0; r < rows; ++r) FillRandomRow(type, kCols, r, 0.02f, &file[r * row_bytes]);
  PageMemory memory = PageMemory::Allocate(std::max(kMemoryBytes, piece_bytes), "packed weights").value();
  std::memset(memory.data(), 0, memory.size());
  size_t at = 0;
  Time(state, file.size(), [&] {
    if (at + piece_bytes > memory.size()) at = 0;
    for (size_t p = 0; p < panels; ++p) {
      kernels.pack_panel(type, &file[p * kPanelRows * row_bytes], row_bytes, kPanelRows, kCols, memory.data() + at);
      at += panel_bytes;
    }
  });
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
  Time(state, LoadAll(model, kernels), [&] { LoadAll(model, kernels); });
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

int Main(int argc, char** argv) {
  const std::vector<const Kernels*> subjects = CheckedKernels();
  for (TensorType type : SupportedTypes()) {
    for (const auto& [what, body] : {std::pair("pack", &Pack), {"load", &Load}, {"cold", &ColdLoad}}) {
      for (const Kernels* kernels : subjects) {
        benchmark::RegisterBenchmark(absl::StrCat(what, "/", kernels->isa, "/", GetTensorType(type).name).c_str(),
                                     [=, run = body](benchmark::State& state) { run(state, *kernels, type); });
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
