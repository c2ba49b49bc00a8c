#ifndef STAGECOACH_COORDINATOR_CLI_BENCH_LOAD_ACCOUNT_H_
#define STAGECOACH_COORDINATOR_CLI_BENCH_LOAD_ACCOUNT_H_

// Where the time of a load went: the accounts of its steps (common/step/step_part.h) and what lies between them.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/json/json.h"
#include "common/obs/step_record.h"
#include "common/step/step_part.h"

namespace stagecoach {

// A stretch of time by the engine's clock. The steps of a load are those whose results came in (begin, begin + us].
struct LoadWindow {
  int64_t begin_us = 0;
  int64_t us = 0;
};

// Sums over the steps of a load. Clocks of different hosts are never compared.
struct LoadAccount {
  struct Stage {
    int64_t queue_us = 0;    // from a frame's arrival to its begin: an earlier one was computed, or a thread woke
    int64_t compute_us = 0;  // begin to end
    StepAccount parts;       // within compute_us
    // Of computing, what no part has: decoding the frame, its plan, the codec of hidden states.
    int64_t outside_ns() const { return compute_us * 1000 - GangNs(parts); }
  };

  int64_t steps = 0;
  int64_t wall_us = 0;     // of the windows
  int64_t latency_us = 0;  // from a step's submission to its result
  // From a result, or a window's begin, to the next submission, while nothing was in flight.
  int64_t coordinator_us = 0;
  std::vector<Stage> stages;

  // Frames on their way: encoding, sending, receiving. What latencies have beside the stages.
  int64_t hops_us() const;
  // Mean of micro-batches that were under way. More than 1: steps overlap, and the times of all stages add up to more
  // than the wall.
  double in_flight() const;
};

// Pure. Records are one job's, in order. kDataLoss: a window has no step, a step has no account of a stage, or its
// stages differ in number.
absl::StatusOr<LoadAccount> AccountOf(absl::Span<const StepRecord> records, absl::Span<const LoadWindow> windows);

// Means over the steps. Stages have "parts" as a step log has them.
Json LoadAccountJson(const LoadAccount& account);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_BENCH_LOAD_ACCOUNT_H_
