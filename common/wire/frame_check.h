#ifndef STAGECOACH_COMMON_WIRE_FRAME_CHECK_H_
#define STAGECOACH_COMMON_WIRE_FRAME_CHECK_H_

// What a decoded frame must fulfil, given what the receiver knows of the job. kInvalidArgument names field, found and
// expected. For use inside common/wire.

#include <vector>

#include "absl/status/status.h"
#include "common/step/step.h"
#include "common/wire/frame.h"

namespace stagecoach::internal {

absl::Status CheckMicroBatch(const FrameLimits& limits, const MicroBatch& batch, bool has_hidden);
absl::Status CheckResult(const FrameLimits& limits, const StepResult& result);
// The stages 0, 1, ... in order: from `least` to `most` of them, none of which ends before it begins.
absl::Status CheckTimes(const std::vector<StageTimes>& times, size_t least, size_t most);
// Whole rows of every layer, of no more layers than the model has, and none where the job asks for none. How many layers
// a step has passed, and the rows of a result's micro-batch, the receiver knows.
absl::Status CheckChecksums(const FrameLimits& limits, size_t entries, int32_t rows);

}  // namespace stagecoach::internal

#endif  // STAGECOACH_COMMON_WIRE_FRAME_CHECK_H_
