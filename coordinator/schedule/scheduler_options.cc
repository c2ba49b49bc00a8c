#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "common/step/sampling_limits.h"
#include "common/step/window_blocks.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {
namespace {

constexpr double kLeastChosen = 1e-9;  // one of more experts than there can be

template <typename Enum, size_t kCount>
bool IsNamed(const NamedValue<Enum> (&table)[kCount], Enum value) {
  return std::any_of(std::begin(table), std::end(table), [value](const auto& entry) { return entry.value == value; });
}

// One sequence alone must be able to go on, row by row, in every pool whose window bounds what it needs.
absl::Status ValidateWindows(const SchedulerOptions& options) {
  const size_t groups = options.group_blocks.size();
  if (options.group_windows.size() != groups) {
    return absl::InvalidArgumentError(absl::StrCat("`group_windows` has ", options.group_windows.size(),
                                                   " entries, expected none or ", groups, ", one a block group"));
  }
  int32_t fewest = std::numeric_limits<int32_t>::max();
  bool all_windowed = true;
  for (size_t group = 0; group < groups; ++group) {
    RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupWindows, options.group_windows[group]));
    if (options.group_windows[group] > 0) continue;
    all_windowed = false;
    fewest = std::min(fewest, options.group_blocks[group]);
  }
  if (all_windowed) {
    return absl::InvalidArgumentError("`group_windows` has a window for every block group, expected at least one 0");
  }
  for (size_t group = 0; group < groups; ++group) {
    const int64_t window = options.group_windows[group];
    if (window == 0) continue;
    const int64_t needed = std::min<int64_t>(fewest, MostBlocksSeen(1, window, options.block_tokens));
    if (options.group_blocks[group] >= needed) continue;
    return absl::InvalidArgumentError(absl::StrCat("`group_blocks` of block group ", group, " is ",
                                                   options.group_blocks[group], ", expected at least ", needed,
                                                   ": a row sees as many with a window of ", window));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSchedulerOptions(const SchedulerOptions& options) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumSeqs, options.max_num_seqs));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMaxNumBatchedTokens, options.max_num_batched_tokens));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kPrefillChunk, options.prefill_chunk));
  // Blocks of any length: what they must be a multiple of is the kernels' business.
  RETURN_IF_ERROR(CheckJobField({"block_tokens", {1, JobLimits::kBlockTokens.range.max}}, options.block_tokens));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kContext, options.context));
  RETURN_IF_ERROR(CheckJobField(JobLimits::kMicroBatches, options.micro_batches));
  RETURN_IF_ERROR(CheckJobFieldOrDefault(JobLimits::kDecodeGroups, options.most_groups));
  RETURN_IF_ERROR(CheckJobField({"max_open_tokens", {options.context, JobLimits::kMaxOpenTokens.range.max}},
                                options.max_open_tokens));
  RETURN_IF_ERROR(CheckJobField({"max_prompt_logprobs", kPromptLogprobsRange}, options.max_prompt_logprobs));
  if (options.group_blocks.empty()) return absl::InvalidArgumentError("`group_blocks` is empty, expected an entry");
  for (const int32_t blocks : options.group_blocks) RETURN_IF_ERROR(CheckJobField(JobLimits::kGroupBlocks, blocks));
  if (!options.group_windows.empty()) RETURN_IF_ERROR(ValidateWindows(options));
  if (!IsNamed(kPolicies, options.policy)) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy is ", static_cast<int>(options.policy), ", which is none of the known ones"));
  }
  if (!IsNamed(kChunkings, options.chunking)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunking is ", static_cast<int>(options.chunking), ", which is none of the known ones"));
  }
  if (!(options.slo_itl_us >= 0 && std::isfinite(options.slo_itl_us))) {
    return absl::InvalidArgumentError(absl::StrCat("`slo_itl_us` is ", options.slo_itl_us, ", expected 0 or more"));
  }
  if (!(options.reads.experts >= 0 && options.reads.experts <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("`experts` is ", options.reads.experts, ", expected a share of the weights, 0 to 1"));
  }
  if (!(options.reads.chosen >= kLeastChosen && options.reads.chosen <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("`experts_chosen` is ", options.reads.chosen,
                                                   ", expected a share of the experts, ", kLeastChosen, " to 1"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
