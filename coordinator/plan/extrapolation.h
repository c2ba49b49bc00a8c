#ifndef STAGECOACH_COORDINATOR_PLAN_EXTRAPOLATION_H_
#define STAGECOACH_COORDINATOR_PLAN_EXTRAPOLATION_H_

// Where a plan goes beyond what was measured, or described, of its hosts. Pure.

#include <string>
#include <vector>

#include "coordinator/plan/cluster_plan.h"

namespace stagecoach {

// A line for each way in which the case that was measured is another one than the plan's, with what is made of it: the
// model, the type of K and V, the instruction set, threads, stages at once, the length of the context; with the hosts
// that it is so on. Empty: nothing is. `plan`: what PlanCluster made of the question.
std::vector<std::string> ExtrapolationsOf(const ClusterQuestion& question, const ClusterPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_EXTRAPOLATION_H_
