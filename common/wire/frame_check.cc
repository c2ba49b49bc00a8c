#include "common/wire/frame_check.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/step/step_check.h"
#include "common/step/window_blocks.h"
#include "common/wire/frame_layout.h"

namespace stagecoach::internal {
namespace {

// A field is named in two parts, `at` and `field`, which are put together only for an error.

absl::Status CheckRange(absl::string_view at, absl::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), value, absl::StrCat(least, " to ", most));
}

absl::Status CheckEntries(absl::string_view at, absl::string_view field, const std::vector<int32_t>& values,
                          int64_t least, int64_t most) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= least && values[i] <= most) continue;
    return CheckRange(absl::StrCat(at, field), absl::StrCat("[", i, "]"), values[i], least, most);
  }
  return absl::OkStatus();
}

absl::Status CheckAtMost(absl::string_view at, absl::string_view field, size_t entries, int64_t most) {
  if (static_cast<int64_t>(entries) <= most) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), absl::StrCat(entries, " entries long"),
                    absl::StrCat("at most ", most, " entries"));
}

// Refuses a sequence that was seen before in the same list.
class Once {
 public:
  absl::Status Add(absl::string_view at, absl::string_view field, SequenceId sequence) {
    if (seen_.insert(sequence).second) return absl::OkStatus();
    return FieldError(absl::StrCat(at, field), absl::StrCat("sequence ", sequence, " for the second time"),
                      "every sequence at most once");
  }

 private:
  absl::flat_hash_set<SequenceId> seen_;
};

// Whether the blocks are full, and who has them, the stages know.
absl::Status CheckShared(const FrameLimits& limits, const std::string& at, const OpenSequence& open, int64_t tokens) {
  RETURN_IF_ERROR(CheckRange(at, ".shared_rows", open.shared_rows, 0, tokens - 1));
  if (open.shared_rows % limits.block_tokens != 0) {
    return FieldError(absl::StrCat(at, ".shared_rows"), open.shared_rows,
                      absl::StrCat("a multiple of ", limits.block_tokens, ", the tokens of a block"));
  }
  const size_t groups = open.shared_rows > 0 ? limits.group_blocks.size() : 0;
  if (open.shared_blocks.size() != groups) {
    return FieldError(
        absl::StrCat(at, ".shared_blocks"), absl::StrCat("of ", open.shared_blocks.size(), " block groups"),
        absl::StrCat(groups, " (shared_rows ", open.shared_rows, ", the model has ", limits.group_blocks.size(), ")"));
  }
  const int64_t blocks = open.shared_rows / limits.block_tokens;
  for (size_t group = 0; group < groups; ++group) {
    const std::string list = absl::StrCat(".shared_blocks[", group, "]");
    const auto entries = static_cast<int64_t>(open.shared_blocks[group].size());
    const int64_t least =
        blocks - FirstPlaceSeen(open.shared_rows, WindowOf(limits.group_windows, group), limits.block_tokens);
    if (entries < least || entries > blocks) {
      return FieldError(absl::StrCat(at, list), absl::StrCat(entries, " entries long"),
                        absl::StrCat(least < blocks ? absl::StrCat(least, " to ") : "", blocks,
                                     " entries (shared_rows ", open.shared_rows, ")"));
    }
    RETURN_IF_ERROR(CheckEntries(at, list, open.shared_blocks[group], 0, limits.group_blocks[group] - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckOpens(const FrameLimits& limits, const std::vector<OpenSequence>& opens) {
  RETURN_IF_ERROR(CheckAtMost("", "step.open", opens.size(), limits.max_slices));
  Once once;
  int64_t tokens = 0;
  for (size_t i = 0; i < opens.size(); ++i) {
    const OpenSequence& open = opens[i];
    const std::string at = absl::StrCat("step.open[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", open.sequence));
    const int64_t sequence_tokens = static_cast<int64_t>(open.prompt.size() + open.output.size());
    if (absl::Status status = CheckOpenSequence(open, limits.vocab); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("frame field '", at, "': ", status.message()));
    }
    RETURN_IF_ERROR(
        CheckRange(at, ".sampling.prompt_logprobs", open.sampling.prompt_logprobs, 0, limits.max_prompt_logprobs));
    RETURN_IF_ERROR(CheckRange(at, " prompt and output tokens", sequence_tokens, 1, limits.context));
    RETURN_IF_ERROR(CheckShared(limits, at, open, sequence_tokens));
    tokens += sequence_tokens;
    RETURN_IF_ERROR(CheckRange("", "step.open tokens in all", tokens, 0, limits.max_open_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view at, absl::string_view field, size_t found, int64_t expected,
                        const SequenceSlice& slice) {
  if (static_cast<int64_t>(found) == expected) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), absl::StrCat(found, " entries long"),
                    absl::StrCat(expected, " entries (start ", slice.start, ", count ", slice.count, ")"));
}

absl::Status CheckNewBlocks(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice) {
  const int64_t blocks = limits.BlocksFor(int64_t{slice.start} + slice.count) - limits.BlocksFor(slice.start);
  const size_t groups = blocks > 0 ? limits.group_blocks.size() : 0;
  if (slice.new_blocks.size() != groups) {
    return FieldError(absl::StrCat(at, ".new_blocks"), absl::StrCat("of ", slice.new_blocks.size(), " block groups"),
                      absl::StrCat(groups, " (start ", slice.start, ", count ", slice.count, ", the model has ",
                                   limits.group_blocks.size(), ")"));
  }
  for (size_t group = 0; group < groups; ++group) {
    const std::string list = absl::StrCat(".new_blocks[", group, "]");
    RETURN_IF_ERROR(CheckCount(at, list, slice.new_blocks[group].size(), blocks, slice));
    RETURN_IF_ERROR(CheckEntries(at, list, slice.new_blocks[group], 0, limits.group_blocks[group] - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckSlice(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice, bool has_hidden) {
  RETURN_IF_ERROR(CheckRange(at, ".start", slice.start, 0, limits.context - 1));
  RETURN_IF_ERROR(CheckRange(at, ".count", slice.count, 1, limits.max_rows));
  const int64_t end = int64_t{slice.start} + slice.count;
  RETURN_IF_ERROR(CheckRange(at, " end (start + count)", end, 1, limits.context));
  RETURN_IF_ERROR(CheckCount(at, ".tokens", slice.tokens.size(), has_hidden ? 0 : slice.count, slice));
  RETURN_IF_ERROR(CheckEntries(at, ".tokens", slice.tokens, 0, limits.vocab - 1));
  RETURN_IF_ERROR(CheckNewBlocks(limits, at, slice));
  if (absl::Status status =
          CheckReleasedBlocks(slice, limits.group_blocks.size(), limits.group_windows, limits.block_tokens);
      !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("frame field '", at, "': ", status.message()));
  }
  if (slice.targets.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount(at, ".targets", slice.targets.size(), slice.count, slice));
  return CheckEntries(at, ".targets", slice.targets, kNoToken, limits.vocab - 1);
}

absl::Status CheckSlices(const FrameLimits& limits, const std::vector<SequenceSlice>& slices, bool has_hidden) {
  RETURN_IF_ERROR(CheckAtMost("", "step.slices", slices.size(), limits.max_slices));
  Once once;
  int64_t rows = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const std::string at = absl::StrCat("step.slices[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", slices[i].sequence));
    RETURN_IF_ERROR(CheckSlice(limits, at, slices[i], has_hidden));
    rows += slices[i].count;
    RETURN_IF_ERROR(CheckRange("", "step.slices rows in all", rows, 0, limits.max_rows));
  }
  return absl::OkStatus();
}

absl::Status CheckSampled(const FrameLimits& limits, const std::vector<SampledToken>& tokens) {
  RETURN_IF_ERROR(CheckAtMost("", "result.sampled", tokens.size(), limits.max_slices));
  Once once;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string at = absl::StrCat("result.sampled[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", tokens[i].sequence));
    RETURN_IF_ERROR(CheckRange(at, ".position", tokens[i].position, 1, limits.context));
    RETURN_IF_ERROR(CheckRange(at, ".token", tokens[i].token, 0, limits.vocab - 1));
    RETURN_IF_ERROR(CheckAtMost(at, ".top", tokens[i].top.size(), kMaxLogprobs));
    for (const TokenLogprob& top : tokens[i].top) {
      RETURN_IF_ERROR(CheckRange(at, ".top token", top.token, 0, limits.vocab - 1));
    }
  }
  return absl::OkStatus();
}

// How many of a row were asked for, who asked knows.
absl::Status CheckTops(const FrameLimits& limits, const std::string& at, const TargetLogprobs& targets) {
  const auto rows = static_cast<int64_t>(targets.logprobs.size());
  RETURN_IF_ERROR(CheckAtMost(at, ".top", targets.top.size(), rows * limits.max_prompt_logprobs));
  if (static_cast<int64_t>(targets.top.size()) % rows != 0) {
    return FieldError(absl::StrCat(at, ".top"), absl::StrCat(targets.top.size(), " entries long"),
                      absl::StrCat("a multiple of ", rows, ", the rows"));
  }
  for (const TokenLogprob& top : targets.top) {
    RETURN_IF_ERROR(CheckRange(at, ".top token", top.token, kNoToken, limits.vocab - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMicroBatch(const FrameLimits& limits, const MicroBatch& batch, bool has_hidden) {
  RETURN_IF_ERROR(CheckAtMost("", "step.free", batch.free.size(), limits.MaxFrees()));
  Once once;
  for (const SequenceId sequence : batch.free) RETURN_IF_ERROR(once.Add("", "step.free", sequence));
  RETURN_IF_ERROR(CheckOpens(limits, batch.open));
  RETURN_IF_ERROR(CheckSlices(limits, batch.slices, has_hidden));
  if (batch.shutdown && !(batch.open.empty() && batch.slices.empty())) {
    return FieldError("step.shutdown", "set on a frame with work", "set on a frame without opens and slices");
  }
  return absl::OkStatus();
}

absl::Status CheckResult(const FrameLimits& limits, const StepResult& result) {
  RETURN_IF_ERROR(CheckSampled(limits, result.sampled));
  RETURN_IF_ERROR(CheckAtMost("", "result.targets", result.targets.size(), limits.max_slices));
  Once once;
  int64_t rows = 0;
  for (size_t i = 0; i < result.targets.size(); ++i) {
    const TargetLogprobs& targets = result.targets[i];
    const std::string at = absl::StrCat("result.targets[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", targets.sequence));
    RETURN_IF_ERROR(CheckRange(at, ".start", targets.start, 0, limits.context - 1));
    if (targets.logprobs.empty()) return FieldError(absl::StrCat(at, ".logprobs"), "empty", "at least one");
    RETURN_IF_ERROR(CheckRange(at, " end (start + logprobs)",
                               targets.start + static_cast<int64_t>(targets.logprobs.size()), 1, limits.context));
    RETURN_IF_ERROR(CheckTops(limits, at, targets));
    rows += static_cast<int64_t>(targets.logprobs.size());
    RETURN_IF_ERROR(CheckRange("", "result.targets rows in all", rows, 0, limits.max_rows));
  }
  RETURN_IF_ERROR(CheckAtMost("", "layer_checksums", result.layer_checksums.size(),
                              int64_t{limits.checksum_layers} * limits.max_rows));
  return CheckTimes(result.times, static_cast<size_t>(limits.stages), static_cast<size_t>(limits.stages));
}

absl::Status CheckChecksums(const FrameLimits& limits, size_t entries, int32_t rows) {
  RETURN_IF_ERROR(CheckAtMost("", "layer_checksums", entries, int64_t{limits.checksum_layers} * rows));
  if (rows == 0 || entries % static_cast<size_t>(rows) == 0) return absl::OkStatus();
  return FieldError("layer_checksums", absl::StrCat(entries, " entries long"),
                    absl::StrCat("a multiple of ", rows, ", the rows of the slices"));
}

absl::Status CheckTimes(const std::vector<StageTimes>& times, size_t least, size_t most) {
  RETURN_IF_ERROR(CheckRange("", "times entries", static_cast<int64_t>(times.size()), static_cast<int64_t>(least),
                             static_cast<int64_t>(most)));
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].stage != static_cast<int32_t>(i)) {
      return FieldError(absl::StrCat("times[", i, "].stage"), times[i].stage, i);
    }
    // One clock took them, in this order, and it never goes back.
    const StageTimes& t = times[i];
    if (t.received_us < 0 || t.start_us < t.received_us || t.end_us < t.start_us || t.send_us < 0 ||
        t.send_start_us < 0 || t.send_us > t.start_us - t.send_start_us) {
      return FieldError(
          absl::StrCat("times[", i, "]"),
          absl::StrCat("received ", t.received_us, ", start ", t.start_us, ", end ", t.end_us, ", send ", t.send_us,
                       " from ", t.send_start_us),
          "none below 0, and none of the first three below the one before it; the send over before the start");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::internal
