#ifndef STAGECOACH_COORDINATOR_SIM_STEP_ANSWER_H_
#define STAGECOACH_COORDINATOR_SIM_STEP_ANSWER_H_

// What the last stage would say of a micro-batch, with made-up tokens.

#include "common/step/step.h"

namespace stagecoach {

inline constexpr TokenId kSimulatedToken = 1;

// A token for every slice that is sampled, log-probabilities for every slice with targets, no times.
StepResult AnswerTo(const MicroBatch& batch);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_STEP_ANSWER_H_
