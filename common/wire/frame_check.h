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

}  // namespace stagecoach::internal

#endif  // STAGECOACH_COMMON_WIRE_FRAME_CHECK_H_
