#ifndef STAGECOACH_COMMON_BASE_CPU_TOPOLOGY_H_
#define STAGECOACH_COMMON_BASE_CPU_TOPOLOGY_H_

// Which hardware threads share a core, and which lie near each other: what hwloc knows of this host.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach {

// Open MPI reads the topology too, in mpirun and in every rank's MPI_Init, with all components of hwloc. Whoever starts
// Open MPI sets this variable, unless the user has: without the component that finds the graphics cards of X displays
// (of libhwloc-plugins, which Debian's Open MPI depends on; it tries ten displays each time, and each try asks the
// resolver for "localhost": seconds, where /etc/hosts does not say it and a name server is slow), and without the two
// that read PCI devices, each of which a virtual machine is asked for word by word: half of the kernel's time in a
// start. Of what Open MPI sends with, libfabric's providers alone look at these, to choose the nearest of several.
inline constexpr char kHwlocComponentsVariable[] = "HWLOC_COMPONENTS";
inline constexpr char kHwlocComponents[] = "-gl,-pci,-linuxio";

// A hardware thread.
struct CpuPlace {
  int cpu = 0;   // the kernel's number
  int core = 0;  // threads of one physical core have the same number, others another
  int node = 0;  // of NUMA memory: where what it touches first comes to lie
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

// The CPUs that the calling thread's affinity allows, near ones side by side: by NUMA node, shared cache and core. A
// host whose topology cannot be read has one thread a core and one node. Never empty. Takes milliseconds. Thread-safe.
std::vector<CpuPlace> AllowedCpuPlaces();

// The same of a made-up machine in hwloc's words, such as "numa:2 core:4 pu:2"; for tests.
absl::StatusOr<std::vector<CpuPlace>> SyntheticCpuPlaces(const std::string& machine, const std::vector<int>& allowed);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CPU_TOPOLOGY_H_
