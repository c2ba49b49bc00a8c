#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/host/host_info.h"

namespace stagecoach {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

// Null without memory.
Topology NewTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  return Topology(topology);
}

// hwloc's logical order is a walk through the tree of nodes, caches and cores.
std::vector<CpuPlace> PlacesIn(hwloc_topology_t topology, const std::vector<int>& allowed) {
  std::vector<CpuPlace> places;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const int cpu = static_cast<int>(pu->os_index);
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) continue;
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    // A CPU may be near to several nodes (of fast and of large memory): the first stands for its place.
    const int node = pu->nodeset != nullptr ? hwloc_bitmap_first(pu->nodeset) : -1;
    places.push_back(
        {cpu, static_cast<int>(core != nullptr ? core->logical_index : pu->logical_index), std::max(node, 0)});
  }
  return places;
}

}  // namespace

std::vector<CpuPlace> AllowedCpuPlaces() {
  const std::vector<int> allowed = AllowedCpus();
  if (const Topology topology = NewTopology(); topology != nullptr && hwloc_topology_load(topology.get()) == 0) {
    std::vector<CpuPlace> places = PlacesIn(topology.get(), allowed);
    if (places.size() == allowed.size()) return places;
  }
  std::vector<CpuPlace> places;
  places.reserve(allowed.size());
  for (const int cpu : allowed) places.push_back({cpu, cpu, 0});
  return places;
}

absl::StatusOr<std::vector<CpuPlace>> SyntheticCpuPlaces(const std::string& machine, const std::vector<int>& allowed) {
  const Topology topology = NewTopology();
  if (topology == nullptr || hwloc_topology_set_synthetic(topology.get(), machine.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", machine, "' describes no machine to hwloc"));
  }
  return PlacesIn(topology.get(), allowed);
}

}  // namespace stagecoach
