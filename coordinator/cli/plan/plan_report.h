#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_

// What `coordinator plan` says: a table, figures and sentences, or the same as JSON.

#include <string>
#include <vector>

#include "common/json/json.h"
#include "coordinator/cli/plan/plan_places.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/plan_advice.h"
#include "coordinator/plan/saved_plan.h"

namespace stagecoach {

struct PlanReport {
  const ClusterQuestion* question = nullptr;
  const PlanPlaces* places = nullptr;
  const ClusterPlan* plan = nullptr;
  const PlanAdvice* advice = nullptr;
  // Words of a command line that say which model: "-m FILE", or those of a model without weights.
  std::vector<std::string> model_words;
  std::vector<std::string> job_words;  // likewise, what a job of one stage was asked to be other than by default
  bool has_tokenizer = true;

  const HostFacts& HostOf(int stage) const {
    return places->profile.hosts[static_cast<size_t>(places->stage_hosts[static_cast<size_t>(stage)])];
  }
};

// What a later job takes over.
SavedPlan SavedPlanOf(const PlanReport& report);

std::string PlanText(const PlanReport& report);
Json PlanJson(const PlanReport& report);

// The sentences at the end of both.
std::vector<std::string> PlanSentences(const PlanReport& report);
// Command lines that start independent jobs, one a host.
std::vector<std::string> IndependentLines(const PlanReport& report);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_
