#ifndef STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CAUSES_H_
#define STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CAUSES_H_

// What to try when a launcher ended before a job came up. Pure.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagecoach {

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

#endif  // STAGECOACH_COORDINATOR_LAUNCH_LAUNCH_CAUSES_H_
