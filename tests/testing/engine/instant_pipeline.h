#ifndef STAGECOACH_TESTS_TESTING_ENGINE_INSTANT_PIPELINE_H_
#define STAGECOACH_TESTS_TESTING_ENGINE_INSTANT_PIPELINE_H_

// Stages that cost nothing: every micro-batch gives its result at the next Poll. The token of a position is the
// position modulo 100, with as many log-probabilities as `top`.

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/schedule/scheduler.h"

namespace stagecoach {

class InstantPipeline : public Pipeline {
 public:
  explicit InstantPipeline(int top) : top_(top) {}
  int stages() const override { return 1; }
  absl::Status Submit(const MicroBatch& batch) override;
  absl::StatusOr<std::optional<StepResult>> Poll() override;

  uint64_t submitted() const { return submitted_; }
  uint64_t last_number() const { return last_number_; }  // of the micro-batch submitted last

 private:
  const int top_;
  uint64_t submitted_ = 0;
  uint64_t last_number_ = 0;
  std::deque<StepResult> results_;
};

// Of a scheduler with room for so many sequences of 1024 tokens at once, in blocks of 32.
SchedulerOptions RoomFor(int sequences);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_TESTING_ENGINE_INSTANT_PIPELINE_H_
