#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

constexpr size_t kReadStep = 4096;  // parts of the memory are multiples of it
constexpr size_t kLeastReadBytes = size_t{128} << 20;
constexpr int kRuns = 6;
constexpr double kRunSeconds = 0.005;  // about the duration of a run of multiply-adds
constexpr int64_t kFirstRounds = 20000;

// What is read: far more than the last-level cache holds, but no more than a quarter of the memory that is free.
size_t ReadBytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const size_t wanted = std::max(kLeastReadBytes, cache > 0 ? 4 * static_cast<size_t>(cache) : 0);
  return std::max<size_t>(std::min<size_t>(wanted, AvailableMemoryBytes() / 4), size_t{1} << 20);
}

double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
double WallSeconds() { return SecondsOf(CLOCK_MONOTONIC); }
double ThreadCpuSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }

// Seconds from when all threads are there until the last one is done, of several runs in ascending order. One thread
// alone takes CPU time, which holds its waits for memory and not those for a core.
std::vector<double> SortedSeconds(Gang* gang, int runs, const std::function<void(int thread)>& work) {
  std::vector<double> all;
  for (int run = 0; run < runs; ++run) {
    double begin = 0, alone = 0;
    gang->Run([&](int thread) {
      gang->Barrier();
      if (thread == 0) begin = WallSeconds();
      const double cpu_begin = ThreadCpuSeconds();
      work(thread);
      if (gang->threads() == 1) alone = ThreadCpuSeconds() - cpu_begin;
    });
    const double seconds = gang->threads() == 1 ? alone : WallSeconds() - begin;
    all.push_back(std::max(seconds, 1e-6));
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Of the fastest pattern, which one run of each finds.
absl::StatusOr<double> MeasureRead(const PeakLoops& loops, int processes, Gang* gang) {
  const size_t part = std::max<size_t>(ReadBytes() / processes / gang->threads() / kReadStep, 1) * kReadStep;
  ASSIGN_OR_RETURN(PageMemory memory,
                   PageMemory::Allocate(part * gang->threads(), "the measurement of the read bandwidth"));
  gang->Run([&](int thread) { std::memset(memory.data() + part * thread, 1, part); });
  std::atomic<uint64_t> sum{0};  // used, so that the reading is
  const auto seconds_of = [&](const ReadPattern& pattern, int runs) {
    return SortedSeconds(gang, runs,
                         [&](int thread) { sum += loops.read(memory.data() + part * thread, part, pattern); });
  };
  ReadPattern best;
  double least = std::numeric_limits<double>::infinity();
  for (const ReadPattern& pattern : kReadPatterns) {
    const double seconds = seconds_of(pattern, 1).front();
    if (seconds < least) best = pattern;
    least = std::min(least, seconds);
  }
  const std::vector<double> runs = seconds_of(best, kRuns);
  const double seconds = processes == 1 ? runs.front() : runs[runs.size() / 2];
  return static_cast<double>(part) * gang->threads() / seconds * 1e-9;
}

// By the CPU time of each thread: others that take the cores away for a moment do not lower a peak.
double MeasureGops(double (*loop)(int64_t rounds), Gang* gang) {
  if (loop == nullptr) return 0;
  int64_t rounds = kFirstRounds;
  for (double seconds = 0; seconds < kRunSeconds; rounds *= 2) {
    const double begin = ThreadCpuSeconds();
    loop(rounds);
    seconds = ThreadCpuSeconds() - begin;
  }
  std::vector<double> best(static_cast<size_t>(gang->threads()));
  for (int run = 0; run < kRuns; ++run) {
    gang->Run([&](int thread) {
      gang->Barrier();
      const double begin = ThreadCpuSeconds();
      const double operations = loop(rounds);
      best[thread] = std::max(best[thread], operations / std::max(ThreadCpuSeconds() - begin, 1e-9));
    });
  }
  return std::accumulate(best.begin(), best.end(), 0.0) * 1e-9;
}

}  // namespace

absl::StatusOr<MachinePeaks> MeasurePeaks(const Kernels& kernels, int threads, const PeakSetting& setting) {
  try {
    Gang gang(threads, setting.cpus, setting.contended);
    const PeakLoops& loops = PeakLoopsOf(kernels);
    MachinePeaks peaks;
    peaks.threads = threads;
    ASSIGN_OR_RETURN(peaks.read_gbps, MeasureRead(loops, setting.processes, &gang));
    peaks.int8_gops = MeasureGops(loops.int8_dot, &gang);
    peaks.bf16_gops = MeasureGops(loops.bf16_dot, &gang);
    peaks.f32_gops = MeasureGops(loops.f32_fma, &gang);
    return peaks;
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start ", threads, " threads: ", error.what()));
  }
}

const char* PeakNameOf(const Kernels& kernels, TensorType type) {
  const ActivationKind kind = ActivationKindFor(kernels, type);
  return kind == ActivationKind::kInt8 ? "int8" : kind == ActivationKind::kBf16 ? "bf16" : "f32";
}

double PeakGopsOf(const MachinePeaks& peaks, const Kernels& kernels, TensorType type) {
  const ActivationKind kind = ActivationKindFor(kernels, type);
  if (kind == ActivationKind::kInt8) return peaks.int8_gops;
  return kind == ActivationKind::kBf16 && peaks.bf16_gops > 0 ? peaks.bf16_gops : peaks.f32_gops;
}

}  // namespace stagecoach
