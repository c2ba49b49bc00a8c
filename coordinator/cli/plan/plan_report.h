#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_

// What `coordinator plan` says of its choice of hosts: for people, and as JSON.

#include <string>

#include "common/json/json_value.h"
#include "coordinator/cli/plan/plan_sentences.h"

namespace stagecoach {

// `verbose`: every stage and every job, not only a line for those that are alike.
std::string PlanText(const PlanReport& report, bool verbose);
Json PlanJson(const PlanReport& report);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_PLAN_REPORT_H_
