#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_

// What keeps ranks from starting. Before a launch: every session asks before it starts ranks, and so does doctor; the
// other hosts say it of themselves (host_pool.h). After one that failed: what to try. Thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"
#include "proto/control.pb.h"

namespace stagecoach {

// The first line that the launcher says of itself. kFailedPrecondition for an mpirun that is not Open MPI's, whose
// options are others; errors of running it. One that says nothing is taken to be a script around the right one.
absl::StatusOr<std::string> LauncherVersion(const LaunchPlan& plan);
// Whether that line is Open MPI's.
bool IsOpenMpis(absl::string_view version);

// Where a launch has its private directory on this host: $TMPDIR or /tmp. Over several hosts Open MPI's files have one
// path on all of them, and only /tmp is on each.
std::string TemporaryDirectoryOf(const Placement& placement);

// What this host lacks for its ranks of the placement (common/host/host_info.h), a sentence each. `threads` of each
// stage; 0: all cores together.
std::vector<std::string> ShortagesHere(const Placement& placement, int threads);

// The same of another host that answered, for as many stages as its slots may get; empty where it does not say.
std::vector<std::string> ShortagesThere(const pb::HostReport& report, const std::string& host,
                                        const std::vector<LaunchHost>& hosts, int stages, int threads);

// The shortages here as one kFailedPrecondition; OK where there are none.
absl::Status CheckThisHost(const Placement& placement, int threads);

// --- after a launch --------------------------------------------------------------------------------------------------

// One sentence or several, without a full stop. `launcher`: "mpirun". `printed`: the last of what it printed.
// `launcher_args`: the user's. `environment`: "NAME=value" as this process has it.
//
//   * Settings of Open MPI (OMPI_MCA_*) are listed with their values; if the text speaks of one, that one is to be
//     unset, else all of them.
//   * Inside an allocation, or what looks like one, its variable is named: the allocation may be over.
//   * The user's own arguments of the launcher are to be checked where there are some.
//   * Where none of these is there: the options that say what is launched where.
std::string AdviceForLaunch(absl::string_view launcher, absl::string_view printed, absl::string_view launcher_args,
                            const std::vector<std::string>& environment);

// The first alone, for a job that does not come up without a word: "; OMPI_MCA_btl=tcp is set ..."; empty without any.
std::string AdviceForSettings(absl::string_view printed, const std::vector<std::string>& environment);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_
