#ifndef STAGECOACH_COORDINATOR_SIM_SIM_STEP_H_
#define STAGECOACH_COORDINATOR_SIM_SIM_STEP_H_

// One micro-batch in a simulated pipeline: what it costs the stages, by the planner's cost model
// (coordinator/plan/cost_model.h), and what the last one answers, with made-up tokens.

#include <cstdint>
#include <vector>

#include "common/step/step.h"
#include "coordinator/plan/prediction.h"

namespace stagecoach {

inline constexpr TokenId kSimulatedToken = 1;

// A token for every slice that is sampled, log-probabilities for every slice with targets, no times.
StepResult AnswerTo(const MicroBatch& batch);

// The rows of a micro-batch, whatever mix they are of. Rows whose targets are asked for go through the head as those do
// that are sampled. `window`: see StepLoad.
StepLoad LoadOf(const MicroBatch& batch, int64_t window = 0);

// Not thread-safe.
class StepCost {
 public:
  explicit StepCost(const PipelineModel* pipeline);  // outlives this

  // Of one stage, while `active` stages of its host (>= 1, itself included) compute all the time.
  double Seconds(int stage, const StepLoad& load, int active) const;

 private:
  // Layers of a stage that have the same work.
  struct Alike {
    int64_t layer = 0;  // one of them
    int64_t count = 0;
  };

  const PipelineModel* const pipeline_;
  std::vector<std::vector<Alike>> layers_;  // [stages]
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SIM_SIM_STEP_H_
