#ifndef STAGECOACH_COMMON_OBS_STEP_RECORD_H_
#define STAGECOACH_COMMON_OBS_STEP_RECORD_H_

// All that is known of a micro-batch once its result is there: what it held, when each stage worked on it, and how the
// queues stood. Plain numbers of whatever clocks the engine and the stages have; logs and timelines are made of it.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/obs/step_inputs.h"
#include "common/step/step.h"

namespace stagecoach {

// After the result was taken.
struct QueueCounts {
  int64_t waiting = 0, running = 0;               // requests
  std::vector<int32_t> blocks_used, blocks_free;  // [block groups]
  int32_t in_flight = 0;                          // other micro-batches
  friend bool operator==(const QueueCounts&, const QueueCounts&) = default;
};

struct StepRecord {
  struct Slice {
    SequenceId sequence = 0;
    int32_t start = 0, count = 0;
    bool sample = false;
  };
  StepRecord() = default;
  StepRecord(const MicroBatch& batch, const StepResult& result);
  size_t bytes() const;  // of memory, about

  // A slice of one sampled row is taken for a decode row, though it may be a prompt's last.
  int64_t rows() const;
  int64_t decode_rows() const;

  uint64_t number = 0;
  bool shutdown = false;  // the last frame of a job, without rows
  std::vector<Slice> slices;
  // The engine's clock: when the latest thing it could have waited for was there (a result or a command), when it was
  // handed to the pipeline, when its result was there.
  int64_t ready_us = 0, submit_us = 0, confirm_us = 0;
  std::vector<StageTimes> times;  // [stages], of each stage's own host
  QueueCounts queues;
  StepInputs inputs;
};

// Takes records in the order of the micro-batches.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void Write(StepRecord record) = 0;  // never blocks
};

// Hands everything on to several, which outlive it.
class StepTee : public StepSink {
 public:
  void Add(StepSink* sink) { sinks_.push_back(sink); }
  bool empty() const { return sinks_.empty(); }
  void Write(StepRecord record) override {
    for (size_t i = 1; i < sinks_.size(); ++i) sinks_[i]->Write(record);
    if (!sinks_.empty()) sinks_[0]->Write(std::move(record));
  }

 private:
  std::vector<StepSink*> sinks_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_OBS_STEP_RECORD_H_
