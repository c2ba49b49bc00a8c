#ifndef STAGECOACH_COORDINATOR_SIM_REPLAY_H_
#define STAGECOACH_COORDINATOR_SIM_REPLAY_H_

// Runs the real engine and scheduler again over the recorded times of a run (its step log), and compares every
// micro-batch with the recorded one: same number, same slices in the same order, handed out before the same results. Of
// the record it takes when requests were taken up, how many decode groups and places for guesses there were, what was
// guessed and whether it held, and what came back when.
//
// A sequence that has fewer tokens than it asked for, and was not cancelled, counts as ended by a stop token with its
// last recorded one. Times during which a front was behind in reading are not in the log: a run that had any may
// differ.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/obs/step_log.h"
#include "coordinator/engine/front.h"

namespace stagecoach {

// Of one job; a log may hold several, each after the loss of the one before.
struct ReplayedJob {
  int32_t stages = 0;
  int64_t requests = 0;
  int64_t tokens = 0;  // sampled
  EngineStatus status;
};

// kFailedPrecondition: a micro-batch differs, says which and how. kInvalidArgument: the log lacks what a replay needs,
// or contradicts itself.
absl::StatusOr<std::vector<ReplayedJob>> Replay(const std::vector<StepRecord>& records);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_REPLAY_H_
