#ifndef STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_
#define STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_

// Coarse loops over all cores, for pieces of milliseconds or more. Not for a model's step: the number of running
// threads is not guaranteed, so pieces must never wait for each other.

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace stagecoach {

// The number of workers for `wanted`, at most the cores; 0 or less: one a core.
int ParallelWorkers(int64_t wanted);

// Calls body(worker, i) for every i in [0, count), roughly in order, which suits files. No two calls run at once with
// the same `worker`, in [0, ParallelWorkers(workers)): it may index scratch memory. After a failure no piece is
// started; returns one of the failures.
absl::Status ParallelFor(int64_t workers, int64_t count,
                         const std::function<absl::Status(int worker, int64_t i)>& body);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_PARALLEL_PARALLEL_FOR_H_
