#ifndef STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_REPORT_H_
#define STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_REPORT_H_

// What `coordinator simulate` says: the lines of a real run's end, the figures of a point of a sweep, or that point's
// record.

#include <string>
#include <vector>

#include "common/json/json.h"
#include "coordinator/bench/sweep_point.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/session/run_summary.h"
#include "coordinator/sim/replay.h"
#include "coordinator/sim/simulation.h"

namespace stagecoach {

// The run as its front would have summed it up.
RunSummary SummaryOf(const ClusterPlan& plan, const ClusterQuestion& question, const SimOutcome& outcome);

// Fills the results of `point`, its stages, its prediction but for the source, and that it is simulated.
void TakeOutcome(const ClusterPlan& plan, const RunSummary& summary, const SimOutcome& outcome, SweepPoint* point);

// `assumptions`: on what it rests that nobody measured; empty: none.
std::string SimulationText(const RunSummary& summary, const SweepPoint& point,
                           const std::vector<std::string>& assumptions);

// Of a recorded run that was replayed without a difference.
std::string ReplayText(const std::vector<ReplayedJob>& jobs);
Json ReplayJson(const std::vector<ReplayedJob>& jobs);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_PLAN_SIMULATE_REPORT_H_
