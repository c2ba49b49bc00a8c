#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_

// What keeps ranks from starting: checks before a launch, for sessions and doctor, and advice after a failed one.
// Thread-safe.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/placement.h"
#include "proto/control.pb.h"

namespace stagecoach {

// The first line of the launcher's --version. kFailedPrecondition for an mpirun other than Open MPI's, whose options
// differ; errors of running it. One without a version is taken for a script around the right one.
absl::StatusOr<std::string> LauncherVersion(const LaunchPlan& plan);
// Whether that line is Open MPI's.
bool IsOpenMpiVersion(absl::string_view version);

// Where a launch makes its private directory: $TMPDIR or /tmp; /tmp with several hosts, whose paths are the same.
std::string TemporaryDirectoryOf(const Placement& placement);

// What this host lacks for its ranks (common/host/host_info.h), a sentence each. `threads`: of a stage; 0: all cores.
std::vector<std::string> ShortagesHere(const Placement& placement, int threads);

// The same of another host by its report, for as many stages as its slots may get; empty where the report lacks it.
std::vector<std::string> ShortagesThere(const pb::HostReport& report, const std::string& host,
                                        const std::vector<LaunchHost>& hosts, int stages, int threads);

// The shortages here as one kFailedPrecondition; OK where there are none.
absl::Status CheckThisHost(const Placement& placement, int threads);

// --- after a launch --------------------------------------------------------------------------------------------------

// One sentence or several, without a full stop. `launcher`: "mpirun". `printed`: the last of what it printed.
// `launcher_args`: the user's. `environment`: "NAME=value" as this process has it.
//
//   * Lists settings of Open MPI (OMPI_MCA_*) with their values: to unset the one that the text names, else all.
//   * Names the variable of an allocation that may be over.
//   * Asks to check the user's own launcher arguments.
//   * Without any of these: names the options that say what is launched where.
std::string AdviceForLaunch(absl::string_view launcher, absl::string_view printed, absl::string_view launcher_args,
                            const std::vector<std::string>& environment);

// The first point alone, for a job that hangs at its start: "; OMPI_MCA_btl=tcp is set ..."; empty without settings.
std::string AdviceForSettings(absl::string_view printed, const std::vector<std::string>& environment);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CHECK_H_
