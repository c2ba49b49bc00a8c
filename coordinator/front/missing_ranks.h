#ifndef STAGECOACH_COORDINATOR_FRONT_MISSING_RANKS_H_
#define STAGECOACH_COORDINATOR_FRONT_MISSING_RANKS_H_

// Tells when a job that starts will not come up, because a rank of this host has ended or is stopped (SIGSTOP): mpirun
// does not mind one that ends in order before MPI_Init, and the others wait in it for ever. Pure: it is told the time.
// Not thread-safe.

#include "absl/time/time.h"

namespace stagecoach {

class MissingRanks {
 public:
  // How long a rank may be missing while others are there. Those of a host are started one after the other, which takes
  // milliseconds, and on a machine with many times more work than cores a second or so. How long the first one takes to
  // appear says nothing.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  // After waiting `waited`; `missing`: some ranks of this host are there, and others are not or are stopped. Whether
  // that has been so all the time for kPatience.
  bool Waited(absl::Duration waited, bool missing) {
    missing_for_ = missing ? missing_for_ + waited : absl::ZeroDuration();
    return missing_for_ >= kPatience;
  }

 private:
  absl::Duration missing_for_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_MISSING_RANKS_H_
