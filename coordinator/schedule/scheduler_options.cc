#include "absl/strings/str_cat.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {
namespace {

absl::Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", must be from ", least, " to ", most));
}

}  // namespace

absl::StatusOr<Policy> ParsePolicy(absl::string_view name) {
  for (const Policy policy : {Policy::kPrefillFirst, Policy::kInterleaved, Policy::kDecodePriority}) {
    if (name == PolicyName(policy)) return policy;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown policy '", name, "', expected prefill-first, interleaved or decode-priority"));
}

const char* PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kPrefillFirst: return "prefill-first";
    case Policy::kInterleaved: return "interleaved";
    case Policy::kDecodePriority: return "decode-priority";
  }
  return "invalid";
}

absl::Status ValidateSchedulerOptions(const SchedulerOptions& options) {
  const struct {
    const char* name;
    int64_t value, least, most;
  } ranges[] = {
      {"max_num_seqs", options.max_num_seqs, 1, 1 << 16},
      {"max_num_batched_tokens", options.max_num_batched_tokens, 1, 1 << 20},
      {"prefill_chunk", options.prefill_chunk, 1, 1 << 20},
      {"block_tokens", options.block_tokens, 1, 1 << 16},
      {"context", options.context, 1, (int64_t{1} << 31) - 1},
      {"micro_batches", options.micro_batches, 1, 1 << 10},
      {"max_open_tokens", options.max_open_tokens, options.context, (int64_t{1} << 40)},
  };
  for (const auto& range : ranges) {
    if (absl::Status status = CheckRange(range.name, range.value, range.least, range.most); !status.ok()) return status;
  }
  if (options.group_blocks.empty()) return absl::InvalidArgumentError("group_blocks is empty, must have an entry");
  for (const int32_t blocks : options.group_blocks) {
    if (absl::Status status = CheckRange("group_blocks", blocks, 1, 1 << 30); !status.ok()) return status;
  }
  if (options.policy != Policy::kPrefillFirst && options.policy != Policy::kInterleaved &&
      options.policy != Policy::kDecodePriority) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy is ", static_cast<int>(options.policy), ", which is none of the known ones"));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
