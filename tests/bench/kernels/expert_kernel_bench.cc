// The matrix kernel at the sizes of experts: matrices of a megabyte, each somewhere else in memory, times few rows.
// Prints VALID or INVALID first; then for every type, shape, number of threads and of rows
//   GB/s      of weights, over matrices in memory that are visited in a random order, one a thread at a time
//   %bw       as a share of what that many threads read at best
//   straight  the same over all of that memory as one matrix: what it costs to begin anew all the time
//   cache     of one matrix that stays in the cache, one thread: where the arithmetic ends
// Each the best of several passes, by the clock: nothing else should run.
//
//   expert_kernel_bench [isa] [type]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/base/counter_rng.h"
#include "common/quant/supported_types.h"
#include "stage_worker/check/machine_peaks.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

constexpr size_t kMemoryBytes = size_t{192} << 20;  // more than the caches hold
constexpr int kMostRows = 16;
constexpr int64_t kMostCols = 2880;
constexpr int kPasses = 7;
constexpr int kRowCounts[] = {1, 2, 3, 4, 6, 8, 16};
constexpr TensorType kTypes[] = {TensorType::kMXFP4, TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ8_0};

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{768, 2048}, {2048, 768}, {2880, 2880}};

// As many matrices as fill the memory, behind each other; the panels repeat, for what they hold does not matter.
class Experts {
 public:
  Experts(const Kernels& kernels, TensorType type, Shape shape)
      : kernels_(kernels),
        inputs_(kernels, kMostRows * kMostCols),
        span_{type, nullptr, shape.rows / kPanelRows, shape.cols} {
    const size_t panel_bytes = PanelBytes(type, shape.cols), row_bytes = RowBytes(type, shape.cols);
    matrix_bytes_ = static_cast<size_t>(span_.panels) * panel_bytes;
    count_ = static_cast<int64_t>(kMemoryBytes / matrix_bytes_);
    memory_ = PageMemory::Allocate(static_cast<size_t>(count_) * matrix_bytes_, "experts").value();
    std::vector<uint8_t> file(kPanelRows * row_bytes);
    for (int r = 0; r < kPanelRows; ++r) FillRandomRow(type, shape.cols, r, 0.02f, &file[r * row_bytes]);
    kernels.pack_panel(type, file.data(), row_bytes, kPanelRows, shape.cols, memory_.data());
    for (int64_t p = 1; p < count_ * span_.panels; ++p) {
      std::memcpy(memory_.data() + static_cast<size_t>(p) * panel_bytes, memory_.data(), panel_bytes);
    }
    for (int64_t i = 0; i < count_; ++i) order_.push_back(i);
    for (int64_t i = count_ - 1; i > 0; --i) {
      std::swap(order_[i], order_[static_cast<size_t>(UniformAt(2, i) * static_cast<double>(i + 1))]);
    }
  }

  // GB/s of the best pass.
  double Visited(int threads, int rows) const {
    return Best(threads, static_cast<double>(memory_.size()), [&](int thread) {
      std::vector<float> out(static_cast<size_t>(rows * span_.panels * kPanelRows));
      for (size_t i = thread; i < order_.size(); i += threads) Multiply(order_[i], 1, rows, out.data());
    });
  }
  double Straight(int threads, int rows) const {
    return Best(threads, static_cast<double>(memory_.size()), [&](int thread) {
      const int64_t begin = count_ * thread / threads, end = count_ * (thread + 1) / threads;
      std::vector<float> out(static_cast<size_t>(rows * (end - begin) * span_.panels * kPanelRows));
      Multiply(begin, end - begin, rows, out.data());
    });
  }
  double Cached(int rows) const {
    constexpr int kTimes = 20;
    std::vector<float> out(static_cast<size_t>(rows * span_.panels * kPanelRows));
    return Best(1, kTimes * static_cast<double>(matrix_bytes_), [&](int) {
      for (int i = 0; i < kTimes; ++i) Multiply(0, 1, rows, out.data());
    });
  }

 private:
  void Multiply(int64_t first, int64_t matrices, int rows, float* out) const {
    PanelSpan span = span_;
    span.data = memory_.data() + static_cast<size_t>(first) * matrix_bytes_;
    span.panels *= matrices;
    kernels_.matmul(span, inputs_.View(span.cols), rows, out, span.panels * kPanelRows);
  }

  template <typename Pass>
  static double Best(int threads, double bytes, Pass pass) {
    double least = 1e9;
    for (int i = 0; i < kPasses; ++i) {
      const double begin = WallSeconds();
      std::vector<std::thread> others;
      for (int t = 1; t < threads; ++t) others.emplace_back(pass, t);
      pass(0);
      for (std::thread& other : others) other.join();
      least = std::min(least, WallSeconds() - begin);
    }
    return bytes * 1e-9 / least;
  }

  const Kernels& kernels_;
  const InputRows inputs_;
  PanelSpan span_;  // of one matrix
  size_t matrix_bytes_;
  int64_t count_;
  PageMemory memory_;
  std::vector<int64_t> order_;
};

void Measure(const Kernels& kernels, TensorType type, Shape shape, const std::vector<MachinePeaks>& peaks) {
  if (shape.cols % GetTensorType(type).block_elements != 0) return;
  const Experts experts(kernels, type, shape);
  for (const int rows : kRowCounts) {
    for (const MachinePeaks& peak : peaks) {
      const double visited = experts.Visited(peak.threads, rows);
      std::printf("%-6s %4lldx%-4lld %d threads %2d rows: %5.1f GB/s %3.0f %%bw, straight %5.1f, cache %5.1f\n",
                  GetTensorType(type).name, static_cast<long long>(shape.rows), static_cast<long long>(shape.cols),
                  peak.threads, rows, visited, 100 * visited / peak.read_gbps, experts.Straight(peak.threads, rows),
                  peak.threads == 1 ? experts.Cached(rows) : 0.0);
      std::fflush(stdout);
    }
  }
}

int Main(int argc, char** argv) {
  const Kernels& kernels = CheckedKernelsOf(argc > 1 ? argv[1] : "auto");
  std::vector<MachinePeaks> peaks;
  for (const int threads : {1, 2}) {
    peaks.push_back(MeasurePeaks(kernels, threads).value());
    std::printf("%d threads read %.1f GB/s\n", threads, peaks.back().read_gbps);
  }
  for (const TensorType type : kTypes) {
    if (argc > 2 && std::string(argv[2]) != GetTensorType(type).name) continue;
    for (const Shape shape : kShapes) Measure(kernels, type, shape, peaks);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
