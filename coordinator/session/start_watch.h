#ifndef STAGECOACH_COORDINATOR_SESSION_START_WATCH_H_
#define STAGECOACH_COORDINATOR_SESSION_START_WATCH_H_

// Finds ranks that ended or are stopped while a job starts: others would wait in MPI_Init for ever. Not thread-safe.

#include <poll.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/launch/hosts/host_survey.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"

namespace stagecoach {

// Looks for ranks of other hosts that are stopped, in one launch.
class StartWatch {
 public:
  // Looks after every sixth of the startup time (10 s of a minute), and soon again after finding one: a debugger or a
  // batch system may stop a process for a moment. `plan` outlives it. `name`: of the launch.
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

// The ranks of this host. mpirun does not mind one that ends in order before MPI_Init. Pure: it is told the time.
class MissingRanks {
 public:
  // How long a rank may be missing while others are there. A host starts its ranks one after the other, which takes
  // milliseconds, or about a second under heavy load; the time to the first one is no measure.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // After waiting `waited`; `missing`: some ranks of this host are there, others not, or stopped. True after kPatience.
  bool Waited(absl::Duration waited, bool missing) {
    missing_for_ = missing ? missing_for_ + waited : absl::ZeroDuration();
    return missing_for_ >= kPatience;
  }

 private:
  absl::Duration missing_for_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_START_WATCH_H_
