#ifndef STAGECOACH_COMMON_JOB_JOB_LIMITS_H_
#define STAGECOACH_COMMON_JOB_JOB_LIMITS_H_

// The ranges of a job's fields (proto/engine.proto, proto/control.proto): the same for the command line, the plan, the
// scheduler and the stages. Messages name the field in backquotes, which the command line shows as its option.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"

namespace stagecoach {

struct JobField {
  const char* name;
  IntegerRange range;
};

struct JobLimits {
  static constexpr JobField kStages = {"stages", {1, 1024}};
  static constexpr JobField kThreads = {"threads", {1, 1024}};          // of a stage
  static constexpr IntegerRange kLayersOfAStage = {1, 1024};            // all together as many as the model has
  static constexpr JobField kContext = {"context", {1, INT32_MAX}};     // tokens of a sequence; positions are int32
  static constexpr JobField kMaxNumSeqs = {"max_num_seqs", {1, 4096}};  // also the slices of a micro-batch
  static constexpr JobField kMaxNumBatchedTokens = {"max_num_batched_tokens", {1, 65536}};  // rows of a micro-batch
  static constexpr JobField kPrefillChunk = {"prefill_chunk", {1, 65536}};
  static constexpr JobField kDecodeGroups = {"decode_groups", {1, 1024}};  // at most as many as micro-batches
  static constexpr JobField kMicroBatches = {"micro_batches", {1, 1024}};  // in flight; by default one a stage
  static constexpr JobField kBlockTokens = {"block_tokens", {16, 1024}};
  static constexpr int64_t kBlockTokensStep = 16;  // a block holds whole tiles of the attention kernels
  static constexpr JobField kGroupBlocks = {"group_blocks", {1, 1 << 30}};  // of a pool; ids are int32, and sums too
  static constexpr JobField kGroupWindows = {"group_windows", {0, INT32_MAX}};  // positions that a row sees; 0: all
  static constexpr JobField kStateSlots = {"state_slots", {1, 1 << 20}};  // of recurrent states; at least max_num_seqs
  static constexpr JobField kMostGuesses = {"most_guesses", {0, 63}};     // of a sequence in flight
  static constexpr JobField kStateBlocks = {"state_blocks", {1, INT32_MAX}};  // that take as many bytes as a state
  // Prompt and output tokens that one micro-batch opens: at least the context, so that any sequence can be opened.
  static constexpr JobField kMaxOpenTokens = {"max_open_tokens", {1, INT32_MAX}};
  static constexpr NumberRange kStageTimeoutS = {0.1, 86400};
  static constexpr NumberRange kSloItlS = {0.0001, 3600};  // gap between two tokens of a sequence; 0: derived
};
static_assert(JobLimits::kMicroBatches.range.max >= JobLimits::kStages.range.max, "a micro-batch for every stage");

// OK, or kInvalidArgument: "`max_num_seqs` is 0, expected 1 to 4096".
inline absl::Status CheckJobField(const JobField& field, int64_t value) {
  if (Contains(field.range, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", field.name, "` is ", value, ", ", Expected(field.range)));
}

// The same, where 0 stands for a default.
inline absl::Status CheckJobFieldOrDefault(const JobField& field, int64_t value) {
  return value == 0 ? absl::OkStatus() : CheckJobField(field, value);
}

// In its range and a multiple of kBlockTokensStep.
inline absl::Status CheckBlockTokens(int64_t block_tokens) {
  RETURN_IF_ERROR(CheckJobField(JobLimits::kBlockTokens, block_tokens));
  if (block_tokens % JobLimits::kBlockTokensStep == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", JobLimits::kBlockTokens.name, "` is ", block_tokens,
                                                 ", expected a multiple of ", JobLimits::kBlockTokensStep));
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_JOB_JOB_LIMITS_H_
