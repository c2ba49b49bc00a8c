#ifndef STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_
#define STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_

// Coarse loops over all cores, for work that takes at least milliseconds a piece. Not for the step of a model: the
// number of threads that really run is not guaranteed, so pieces must never wait for each other.

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace stagecoach {

// The number of workers for a wish: itself, or one a core when it is 0 or less; never more than there are cores.
int ParallelWorkers(int64_t wanted);

// Calls body(worker, i) for every i in [0, count). Pieces are taken in order, so that a loop that reads or writes a
// file goes through it about once. `worker` is in [0, ParallelWorkers(workers)) and no two calls run at once with the
// same one: it may index scratch memory. After a failure no piece is begun any more; returns one of the failures.
absl::Status ParallelFor(int64_t workers, int64_t count,
                         const std::function<absl::Status(int worker, int64_t i)>& body);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_
