#ifndef STAGECOACH_COORDINATOR_SIM_STEP_COST_H_
#define STAGECOACH_COORDINATOR_SIM_STEP_COST_H_

// What a micro-batch costs the stages, by the planner's cost model (coordinator/plan/cost_model.h). Pure.

#include <cstdint>
#include <utility>
#include <vector>

#include "common/step/step.h"
#include "coordinator/plan/prediction.h"

namespace stagecoach {

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

#endif  // STAGECOACH_COORDINATOR_SIM_STEP_COST_H_
