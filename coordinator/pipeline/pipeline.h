#ifndef STAGECOACH_COORDINATOR_PIPELINE_PIPELINE_H_
#define STAGECOACH_COORDINATOR_PIPELINE_PIPELINE_H_

// The engine's view of the stages: micro-batches go in, results come out in the same order.

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/step/step.h"

namespace stagecoach {

// Not thread-safe.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual int stages() const = 0;

  // Hands a micro-batch to the first stage; never blocks. Numbers are consecutive from 0.
  virtual absl::Status Submit(const MicroBatch& batch) = 0;

  // Makes progress; returns the next result if it has arrived. kUnavailable: a stage is lost, or what it sent is
  // damaged (the message names it); a new job may help. Any other error is final.
  virtual absl::StatusOr<std::optional<StepResult>> Poll() = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_PIPELINE_PIPELINE_H_
