#ifndef STAGECOACH_COORDINATOR_PLAN_PLAN_ADVICE_H_
#define STAGECOACH_COORDINATOR_PLAN_PLAN_ADVICE_H_

// Advice about a plan: alternatives, and where it extrapolates from measurements. Pure.

#include <string>
#include <vector>

#include "coordinator/plan/cluster_plan.h"

namespace stagecoach {

// Each alternative is planned like the plan, with one change.
enum class PlanChange {
  kMoreSequences,  // twice as many at once
  kFasterLinks,    // between hosts, ten times the bandwidth
  kMoreMemory,     // twice as much on every host
  kAnotherHost,    // one more like the last one, with as many stages
  kOneStageAHost,  // with all the host's cores
  kBestSplit,      // of the layers, in place of the one that was asked for
  kBestChunk,      // in place of the one that was asked for
  kBestGroups,     // in place of the micro-batches that were asked for
};

struct PlanAlternative {
  PlanChange change = PlanChange::kMoreSequences;
  double output_tokens_per_s = 0;
  double itl_s = 0;
  double ttft_s = 0;
};

// Those that can be planned and change anything, best first. `plan`: what PlanCluster made of the question.
std::vector<PlanAlternative> AlternativesTo(const ClusterQuestion& question, const ClusterPlan& plan);

// A line for each way in which the plan extrapolates from what was measured (model, type of K and V, instruction set,
// threads, stages at once, context length), how it is accounted for, and the hosts. `plan`: PlanCluster's.
std::vector<std::string> ExtrapolationsOf(const ClusterQuestion& question, const ClusterPlan& plan);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_PLAN_ADVICE_H_
