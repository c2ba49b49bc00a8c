#include "coordinator/plan/pool_sizes.h"

#include <algorithm>

#include "common/job/job_limits.h"
#include "common/step/window_blocks.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMostBlocks = JobLimits::kGroupBlocks.range.max;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;
// With a prefix cache: windows that it can keep beside those in use, for each sequence that can run.
constexpr int64_t kKeptWindows = 4;

// Of a group with a window, that all sequences together can use.
uint64_t MostUsed(const pb::ConfigureJob& job, int64_t window) {
  const int64_t chunk = std::max(1, std::min(job.prefill_chunk(), job.max_num_batched_tokens()));
  int64_t blocks = MostBlocksSeen(chunk, window, job.block_tokens());
  if (job.prefix_caching()) blocks += kKeptWindows * MostBlocksSeen(1, window, job.block_tokens());
  return std::min(kMostBlocks, static_cast<uint64_t>(job.max_num_seqs()) * static_cast<uint64_t>(blocks));
}

}  // namespace

std::vector<int64_t> ReleaseWindows(const HyperParameters& hyper) {
  std::vector<int64_t> windows = hyper.group_windows();
  if (std::count(windows.begin(), windows.end(), 0) == 0) windows.front() = 0;
  if (std::count(windows.begin(), windows.end(), 0) == static_cast<int64_t>(windows.size())) windows.clear();
  return windows;
}

PoolSizes::PoolSizes(const pb::ConfigureJob& job, const HyperParameters& hyper) {
  const std::vector<int64_t> windows = ReleaseWindows(hyper);
  for (int32_t group = 0; group < hyper.block_groups(); ++group) {
    const int64_t window = WindowOf(windows, static_cast<size_t>(group));
    most_.push_back(window > 0 ? MostUsed(job, window) : kMostBlocks);
  }
}

std::vector<int32_t> PoolSizes::Blocks(uint64_t blocks) const {
  std::vector<int32_t> group_blocks;
  for (const uint64_t most : most_) group_blocks.push_back(static_cast<int32_t>(std::min(blocks, most)));
  return group_blocks;
}

uint64_t PoolSizes::Bytes(uint64_t blocks, absl::Span<const uint64_t> block_bytes) const {
  uint64_t sum = 0;
  for (size_t group = 0; group < most_.size(); ++group) {
    uint64_t bytes = 0;
    const bool overflow = __builtin_mul_overflow(std::min(blocks, most_[group]), block_bytes[group], &bytes);
    if (overflow || bytes > kMostBytes - sum) return kMostBytes;
    sum += bytes;
  }
  return sum;
}

uint64_t PoolSizes::Fitting(uint64_t bytes, absl::Span<const uint64_t> block_bytes) const {
  uint64_t fits = 0, beyond = kMostBlocks + 1;
  while (beyond - fits > 1) {
    const uint64_t blocks = fits + (beyond - fits) / 2;
    (Bytes(blocks, block_bytes) <= std::min(bytes, kMostBytes - 1) ? fits : beyond) = blocks;
  }
  return fits;
}

}  // namespace stagecoach
