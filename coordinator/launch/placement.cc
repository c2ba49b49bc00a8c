#include "coordinator/launch/placement.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_limits.h"
#include "coordinator/launch/host_file.h"
#include "coordinator/launch/local_host.h"

namespace stagecoach {
namespace {

// Slots in order; a host that is named twice with another between keeps both of its places.
void Fill(const std::vector<HostSlots>& hosts, Placement* placement) {
  int left = placement->stages;
  for (const HostSlots& host : hosts) {
    if (left == 0) break;
    const int placed = std::min(left, host.slots);
    left -= placed;
    if (!placement->hosts.empty() && placement->hosts.back().host == host.name) {
      placement->hosts.back().stages += placed;
    } else {
      placement->hosts.push_back({host.name, placed, IsThisHost(host.name)});
    }
  }
}

}  // namespace

absl::StatusOr<Placement> PlaceStages(const LaunchOptions& options) {
  Placement placement;
  RETURN_IF_ERROR(CheckJobFieldOrDefault(JobLimits::kStages, options.stages));
  if (options.hostfile.empty() && options.hosts.empty()) {
    placement.stages = std::max(options.stages, 1);
    return placement;
  }
  if (!options.hostfile.empty() && !options.hosts.empty()) {
    return absl::InvalidArgumentError("`hostfile` and `hosts` name the hosts twice; give one of them");
  }
  const std::string source =
      options.hosts.empty() ? absl::StrCat("host file '", options.hostfile, "'") : "the list of `hosts`";
  ASSIGN_OR_RETURN(const std::vector<HostSlots> hosts,
                   options.hosts.empty() ? ReadHostFile(options.hostfile) : ParseHostList(options.hosts));
  int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  const int64_t wanted = options.stages != 0 ? options.stages : slots;
  RETURN_IF_ERROR(CheckJobField(JobLimits::kStages, wanted));
  if (wanted > slots) {
    return absl::InvalidArgumentError(absl::StrCat(wanted, " stages need ", wanted, " slots, but ", source, " has ",
                                                   slots, "; lower `stages` or give more slots"));
  }
  placement.stages = static_cast<int>(wanted);
  Fill(hosts, &placement);
  const bool all_here = std::all_of(placement.hosts.begin(), placement.hosts.end(),
                                    [](const PlacedStages& placed) { return placed.here; });
  if (all_here) placement.hosts.clear();
  return placement;
}

}  // namespace stagecoach
