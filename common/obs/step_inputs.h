#ifndef STAGECOACH_COMMON_OBS_STEP_INPUTS_H_
#define STAGECOACH_COMMON_OBS_STEP_INPUTS_H_

// What decided, beside results, what a micro-batch holds: with it a recorded run can be replayed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace stagecoach {

// How the job's scheduler was made; fields as of its options.
struct RecordedJob {
  int32_t stages = 0;
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0, prefill_chunk = 0;
  std::string policy, chunking;
  double slo_itl_us = 0;
  double experts = 0, experts_chosen = 1;  // of the weights, of the experts: what steps read by their rows
  int32_t block_tokens = 0;
  std::vector<int32_t> group_blocks;
  std::vector<int64_t> group_windows;
  int64_t context = 0;
  int32_t micro_batches = 0, most_groups = 0;
  int64_t max_open_tokens = 0;
  bool prefix_caching = false;
  int32_t decode_groups = 0;  // at the beginning
  friend bool operator==(const RecordedJob&, const RecordedJob&) = default;
};

// A request that was taken up, or cancelled, between two micro-batches.
struct RecordedCommand {
  SequenceId sequence = 0;
  uint64_t confirmed = 0;  // results that had come back before it
  bool cancel = false;
  // Otherwise: the request.
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // produced by an earlier job
  int64_t max_new_tokens = 0;
  int64_t score_from = -1;
  uint64_t tenant = 0;  // what it is known by there, of 63 bits; 0: it has no name
  double weight = 1;
  int32_t priority_class = 1;
  std::vector<uint64_t> blocks;  // with a prefix cache: for each full block of its tokens, what it is known by there,
                                 // of 63 bits
  friend bool operator==(const RecordedCommand&, const RecordedCommand&) = default;
};

// A block that the micro-batch fills with tokens of which some were produced, with a prefix cache.
struct RecordedBlock {
  SequenceId sequence = 0;
  int64_t block = 0;  // of the sequence
  uint64_t hash = 0;  // as of RecordedCommand::blocks
  friend bool operator==(const RecordedBlock&, const RecordedBlock&) = default;
};
inline constexpr uint64_t kRecordedHashMask = ~uint64_t{0} >> 1;

struct StepInputs {
  std::optional<RecordedJob> job;         // with the first micro-batch alone
  std::vector<RecordedCommand> commands;  // since the micro-batch before, in order
  std::vector<RecordedBlock> blocks;
  int32_t decode_groups = 0;  // once its own result had come back; 0: not told
  friend bool operator==(const StepInputs&, const StepInputs&) = default;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_OBS_STEP_INPUTS_H_
