#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_TEXT_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_TEXT_H_

// What `coordinator simulate` prints.

#include <string>
#include <vector>

#include "common/json/json.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/session/run_summary.h"
#include "coordinator/sim/replay.h"

namespace stagecoach {

// Layers of each stage, "11,10,7"; of many stages by runs, "511 x 1, 2".
std::string SplitText(const JobPlan& job);

// The first line: the load and the split.
std::string LoadText(const SweepConfig& load, const std::string& split);

// `assumptions`: facts that it rests on but were not measured.
std::string SimulationText(const RunSummary& summary, const SweepPoint& point, const std::string& split,
                           const std::vector<std::string>& assumptions);

// Of a recorded run that was replayed without a difference.
std::string ReplayText(const std::vector<ReplayedJob>& jobs);
Json ReplayJson(const std::vector<ReplayedJob>& jobs);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_TEXT_H_
