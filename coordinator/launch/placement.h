#ifndef STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_

// Which host runs which stages. Rank 0, the coordinator, runs on this host and takes no slot.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launch/launch_options.h"

namespace stagecoach {

// Stages that run on one host.
struct PlacedStages {
  std::string host;
  int stages = 0;
  bool here = false;  // the host is this one
};

struct Placement {
  int stages = 1;
  std::vector<PlacedStages> hosts;  // in order, when one of them is another host; empty: all stages are here
};

// Fills the stages into the slots of the host file or the host list in order; without either all are here.
// kNotFound: no such file. kInvalidArgument: a bad file or list, both at once, more stages than there are slots or than
// a job may have.
absl::StatusOr<Placement> PlaceStages(const LaunchOptions& options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_
