#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_JOB_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_JOB_H_

// The timeline of one job as plain numbers: recorded, simulated, or read from a trace file. All times are microseconds
// of the engine's clock, whose origin is arbitrary.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/obs/step_record.h"

namespace stagecoach {

struct TraceStage {
  int32_t rank = 0;
  std::string host;
  int64_t first_layer = 0, last_layer = 0;  // [first, last)
  int32_t threads = 0;
};

struct TraceHeader {
  std::string version;  // of the program
  bool simulated = false;
  std::string coordinator_host;
  int64_t start_us = 0;       // when the job began, before its stages were loaded
  int64_t start_unix_us = 0;  // the same moment since the Unix epoch; 0: there is none
  std::vector<TraceStage> stages;
  std::vector<std::pair<std::string, std::string>> options;  // of the job, as name and value
};

// One micro-batch on one stage.
struct TraceSpan {
  int64_t received_us = 0, start_us = 0, end_us = 0;
  // Of its frame to the next stage, begin to completion; equal: not known.
  int64_t send_start_us = 0, send_end_us = 0;
  friend bool operator==(const TraceSpan&, const TraceSpan&) = default;
};

// What a request did between two micro-batches: it was taken up, or cancelled.
struct TraceCommand {
  bool cancel = false;
  uint64_t request = 0, sequence = 0;  // of the front, which stays; of the job
  int64_t at_us = 0;
  int64_t prompt_tokens = 0;
  friend bool operator==(const TraceCommand&, const TraceCommand&) = default;
};
// Rows of one sequence in a micro-batch: positions [start, start + count). `sample`: its next token follows from them.
// `guess`: its one token was a guess.
struct TraceSlice {
  uint64_t sequence = 0;
  int64_t start = 0, count = 0;
  bool sample = false;
  GuessRecord guess = GuessRecord::kNone;
  friend bool operator==(const TraceSlice&, const TraceSlice&) = default;
};

struct TraceStep {
  uint64_t number = 0;
  bool shutdown = false;
  int64_t prefill_rows = 0, decode_rows = 0, sequences = 0;
  int64_t ready_us = 0, submit_us = 0, confirm_us = 0;  // see StepRecord
  QueueCounts queues;
  std::vector<TraceSpan> stages;       // [stages]
  std::vector<TraceCommand> commands;  // since the micro-batch before, in order
  std::vector<TraceSlice> slices;      // of the micro-batch

  int64_t rows() const;  // of its slices; prefill_rows and decode_rows leave guesses out
  int64_t guessed_rows() const;
  int64_t void_rows() const;  // of these
};

// How a stage's clock was brought to the engine's.
struct StageClock {
  int64_t offset_us = 0;  // the stage's clock minus the engine's, in the middle of the run
  int64_t error_us = 0;   // at any time of the run it was right to within this
  double drift_ppm = 0;   // by how much it went faster, on average
};

// While it is not `aligned`, every span is in the clock of its stage, its send is the one that was complete last when
// the span began, and the last step may be the shutdown.
struct TraceJob {
  TraceHeader header;
  bool aligned = false;
  bool cut = false;                // once aligned: its end is missing, or what was in flight when it was killed
  std::vector<StageClock> clocks;  // [stages], once aligned
  std::vector<TraceStep> steps;    // numbers rise

  // Micro-batches that the record left out: what the disk could not take.
  int64_t missing() const;
  int stages() const { return static_cast<int>(header.stages.size()); }
  // From the first micro-batch's submission to the last result; equal without steps.
  int64_t begin_us() const;
  int64_t end_us() const;
};

// Of a job that is not aligned yet.
TraceStep TraceStepOf(const StepRecord& record);

// Finishes a recording: assigns each frame its send, removes the shutdown, and converts the stages' times to the
// engine's clock (clock_estimate.h). Stages of one host share a clock; those on the coordinator's host, and everything
// simulated, have the engine's. An aligned job stays as it is. kInvalidArgument: times of one host that go back, or
// that no clocks can explain.
absl::Status AlignTrace(TraceJob* job);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_JOB_H_
