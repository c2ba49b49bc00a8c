#ifndef STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_
#define STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_

// Which host runs which stages of one launch. Rank 0, the coordinator, runs on this host and takes no slot. Pure.

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launch/hosts/host_file.h"

namespace stagecoach {

struct LaunchHost {
  HostSlots slots;
  bool here = false;  // the host is this one
  const std::string& name() const { return slots.name; }
};

// Stages that run on one host, with the numbers that follow those of the host before.
struct PlacedStages {
  std::string host;
  int stages = 0;
  bool here = false;
  std::string model;   // where this host has the model; empty: where the coordinator has it
  bool draft = false;  // it is the job's draft, none of the model's stages
  friend bool operator==(const PlacedStages&, const PlacedStages&) = default;
};

// By which of their networks the hosts reach each other (host_networks.h). Empty: it is not known.
struct Networks {
  std::string include;  // "10.1.0.0/16,10.2.0.0/16"
  std::string exclude;  // interfaces: "docker0,lo"
  bool ipv6 = false;    // alone
  bool empty() const { return include.empty() && exclude.empty() && !ipv6; }
  friend bool operator==(const Networks&, const Networks&) = default;
};

struct Placement {
  std::vector<PlacedStages> hosts;  // in the order of the stages, and last the draft's
  Networks networks;                // as found out before this launch
  int stages() const;
  const PlacedStages* draft() const;                                 // nullptr: there is none
  int ranks() const { return 1 + stages() + (draft() != nullptr); }  // the draft's is the last
  bool AllHere() const;
  // "2 on node1, 1 on node2"
  std::string Describe() const;
};

// How many stages the hosts can take, spare ones and the draft's aside.
int64_t SlotsOf(const std::vector<LaunchHost>& hosts);

// Fills up to `stages` stages into the slots of the hosts in their order, without those of the names `left_out`, and
// then into those of spare hosts: fewer where all these together have fewer slots, possibly none.
Placement PlaceStages(const std::vector<LaunchHost>& hosts, int stages, const std::set<std::string>& left_out);
// Behind the stages, the draft on its host, where the hosts have one that is not left out.
void PlaceDraft(const std::vector<LaunchHost>& hosts, const std::set<std::string>& left_out, Placement* placement);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_LAUNCH_PLACEMENT_H_
