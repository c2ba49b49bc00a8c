#ifndef STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_
#define STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_

// What is taken for hosts and links that nobody has measured or described: round numbers of servers of the last years,
// on the low side. Good enough to compare plans with each other, not to promise a speed.

#include <cstdint>
#include <string>

#include "coordinator/plan/host_profile.h"

namespace stagecoach {

inline constexpr double kAssumedReadGbpsOfCore = 10, kAssumedReadGbpsOfHost = 80;  // the lesser of cores' and host's
inline constexpr double kAssumedInt8GopsOfCore = 300, kAssumedF32GopsOfCore = 75;
inline constexpr double kAssumedLinkGbitS = 10, kAssumedLinkLatencyUs = 50;  // between two hosts

// A host of which only these are known; its speeds are the numbers above.
HostFacts AssumedHost(const std::string& name, int cores, uint64_t available_bytes);

LinkFacts AssumedLink();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PLAN_ASSUMED_FACTS_H_
