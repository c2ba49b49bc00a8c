#ifndef STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_
#define STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_

// Looks for ranks of other hosts that are stopped (SIGSTOP) while a job starts: such a job waits in MPI_Init, and
// nothing of it says so. This host's ranks are seen directly (missing_ranks.h).

#include <poll.h>

#include <memory>
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
  // It looks once: after a sixth of the time that a job may take to start, 10 s of a minute. `plan` outlives it.
  // `name`: of the launch.
  StartWatch(const LaunchPlan& plan, const Placement& placement, const std::string& name,
             absl::Duration startup_timeout);

  // `starting`: since the launch. "rank 3 on node7 is stopped (pid 77)" when that is so; else empty.
  std::string Advance(absl::Duration starting);
  void AddWaits(std::vector<pollfd>* waits) const;

 private:
  const absl::Duration looks_after_;
  std::vector<HostQuestion> questions_;  // none: there is no other host, or it has asked
  std::unique_ptr<HostSurvey> survey_;   // while hosts answer
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_START_WATCH_H_
