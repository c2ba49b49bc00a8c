#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_SHARES_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_SHARES_H_

// How often guesses prove right, of all sequences of a job: what the group planner chooses by.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace stagecoach {

// [acceptance in sixteenths] open sequences whose guesses prove right so often. What exceeds those that decode is cut
// from the lowest class.
using GuessShares = std::array<int32_t, 17>;

// The class of an acceptance in [0, 1], to the nearest sixteenth; and the acceptance that a class stands for.
inline size_t ShareClass(double acceptance) {
  return static_cast<size_t>(std::lround(std::clamp(acceptance, 0.0, 1.0) * 16));
}
inline double ShareAcceptance(size_t share) { return static_cast<double>(share) / 16; }

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_SHARES_H_
