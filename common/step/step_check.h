#ifndef STAGECOACH_COMMON_STEP_STEP_CHECK_H_
#define STAGECOACH_COMMON_STEP_STEP_CHECK_H_

// What makes a sequence valid for a vocabulary, whoever asks: the engine when a request comes in, a frame when it is
// encoded or decoded, the stage that samples. kInvalidArgument names the field, what it is and what was expected:
// "sampling.top_p is 2, expected more than 0 and up to 1". Ranges: sampling_limits.h. Thread-safe.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach {

// Every token is in [0, vocab); `field` names the list.
absl::Status CheckTokenIds(absl::string_view field, absl::Span<const TokenId> tokens, int64_t vocab);

// A bias is in its range, or -inf, which forbids the token.
absl::Status CheckSamplingParams(const SamplingParams& sampling, int64_t vocab);

// There is a prompt, every token is in [0, vocab), and the sampling parameters are valid.
absl::Status CheckOpenSequence(const OpenSequence& open, int64_t vocab);

// Nothing is released that a row of the slice sees, nothing of a group without a window, and there is an entry for
// every group or none at all. `groups` and `windows`, [groups] or empty, are of block groups (window_blocks.h). What
// was released before, the stages know.
absl::Status CheckReleasedBlocks(const SequenceSlice& slice, size_t groups, absl::Span<const int64_t> windows,
                                 int32_t block_tokens);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_STEP_CHECK_H_
