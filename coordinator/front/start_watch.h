#ifndef STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_
#define STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_

// Looks for ranks of other hosts that are stopped (SIGSTOP) while a job starts: such a job waits in MPI_Init, and
// nothing of it says so. This host's ranks are seen directly (missing_ranks.h).

#include <poll.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/launch/host_survey.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// Of one launch. Not thread-safe.
class StartWatch {
 public:
  // It looks whenever another sixth of the time that a job may take to start has passed (10 s of a minute), and soon
  // again when it saw one: a debugger or a batch system may stop a process for a moment. `plan` outlives it. `name`: of
  // the launch.
  StartWatch(const LaunchPlan& plan, const Placement& placement, const std::string& name,
             absl::Duration startup_timeout);

  // `starting`: since the launch. "rank 3 on node7 is stopped (pid 77)" when two looks running saw that; else empty.
  std::string Advance(absl::Duration starting);
  void AddWaits(std::vector<pollfd>* waits) const;

 private:
  const absl::Duration period_;
  absl::Duration next_look_;             // as `starting`
  std::vector<HostQuestion> questions_;  // none: there is no other host
  std::unique_ptr<HostSurvey> survey_;   // while hosts answer
  std::set<std::string> seen_;           // by the last look
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_
