#ifndef STAGECOACH_COMMON_OBS_STEP_RECORD_H_
#define STAGECOACH_COMMON_OBS_STEP_RECORD_H_

// All that is known of a micro-batch once its result is there: what it held, when each stage worked on it, and how the
// queues stood. Plain numbers of whatever clocks the engine and the stages have; logs and timelines are made of it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/job/job_settings.h"
#include "common/step/step.h"

namespace stagecoach {

// StepInputs and its parts: what decided, beside results, what a micro-batch holds. With it a recorded run can be
// replayed.

// How the job's scheduler was made.
struct RecordedJob : BatchingSettings, BatchingRoom {
  int32_t stages = 0;
  double experts = 0, experts_chosen = 1;  // of the weights, of the experts: what steps read by their rows
  int32_t decode_groups = 0;               // at the beginning
  int32_t guess_places = 0;                // the same, of Scheduler::SetGuessPlaces
  friend bool operator==(const RecordedJob&, const RecordedJob&) = default;
};

// A request that was taken up, or cancelled, between two micro-batches.
struct RecordedCommand {
  SequenceId sequence = 0;
  uint64_t confirmed = 0;  // results that had come back before it
  bool cancel = false;
  RequestId request = 0;  // the front's number of it, which stays in a later job; a step log does not have it
  int64_t at_us = 0;      // when it was taken up, by the engine's clock; a step log does not have it either
  // Otherwise: the request.
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // produced by an earlier job
  int64_t max_new_tokens = 0;
  int64_t score_from = -1;
  int64_t conversation_tokens = -1;
  uint64_t tenant = 0;  // what it is known by there, of 63 bits; 0: it has no name
  double weight = 1;
  int32_t priority_class = 1;
  uint64_t grammar = 0;          // what it is known by there, of 63 bits; only where it has one
  int64_t grammar_bytes = 0;     // of its program; 0: it has none
  std::vector<uint64_t> blocks;  // with a prefix cache: for each full block of its tokens, what it is known by there,
                                 // of 63 bits
  friend bool operator==(const RecordedCommand&, const RecordedCommand&) = default;
};

// A block that the micro-batch fills with tokens of which some were produced, with a prefix cache.
struct RecordedBlock {
  SequenceId sequence = 0;
  int64_t block = 0;  // of the sequence
  uint64_t hash = 0;  // as of RecordedCommand::blocks
  friend bool operator==(const RecordedBlock&, const RecordedBlock&) = default;
};
inline constexpr uint64_t kRecordedHashMask = ~uint64_t{0} >> 1;

struct StepInputs {
  std::optional<RecordedJob> job;         // with the first micro-batch alone
  std::vector<RecordedCommand> commands;  // since the micro-batch before, in order
  std::vector<RecordedBlock> blocks;
  int32_t decode_groups = 0;  // once its own result had come back; 0: not told
  int32_t guess_places = 0;   // the same, of Scheduler::SetGuessPlaces
  uint64_t confirmed = 0;     // with guesses: results that had come back when it was composed
  friend bool operator==(const StepInputs&, const StepInputs&) = default;
};

// After the result was taken.
struct QueueCounts {
  int64_t waiting = 0, running = 0;               // requests
  std::vector<int32_t> blocks_used, blocks_free;  // [block groups]
  int32_t in_flight = 0;                          // other micro-batches
  friend bool operator==(const QueueCounts&, const QueueCounts&) = default;
};

enum class GuessRecord : uint8_t { kNone, kRight, kVoid };  // of a slice: no guess, one that held, one that did not

struct StepRecord {
  struct Slice {
    SequenceId sequence = 0;
    int32_t start = 0, count = 0;
    bool sample = false;
    SlotId state_read = kNoSlot, state_write = kNoSlot;
    GuessRecord guess = GuessRecord::kNone;
  };
  StepRecord() = default;
  StepRecord(const MicroBatch& batch, const StepResult& result)
      : number(batch.number), shutdown(batch.shutdown), drop_grammars(batch.drop_grammars), times(result.times) {
    for (const GrammarDefinition& definition : batch.define_grammars) define_grammars.push_back(definition.id);
    slices.reserve(batch.slices.size());
    size_t sampled = 0;
    for (const SequenceSlice& slice : batch.slices) {
      slices.push_back({slice.sequence, slice.start, slice.count, slice.sample, slice.state_read, slice.state_write});
      const bool is_void = slice.sample && sampled < result.sampled.size() && result.sampled[sampled].is_void;
      if (slice.guess) slices.back().guess = is_void ? GuessRecord::kVoid : GuessRecord::kRight;
      if (slice.sample) ++sampled;
    }
  }

  // Of memory, about.
  size_t bytes() const {
    size_t hashes = 0;
    for (const RecordedCommand& command : inputs.commands) hashes += command.blocks.size();
    return hashes * sizeof(uint64_t) + sizeof(*this) + slices.size() * sizeof(Slice) +
           times.size() * sizeof(StageTimes) +
           (times.empty() ? 0 : times.size() * times[0].account.size() * sizeof(StepPartTotals)) +
           inputs.commands.size() * sizeof(RecordedCommand) + inputs.blocks.size() * sizeof(RecordedBlock) +
           (drop_grammars.size() + define_grammars.size()) * sizeof(GrammarId) +
           (queues.blocks_used.size() + queues.blocks_free.size()) * sizeof(int32_t);
  }

  // A slice of one sampled row that is no guess is taken for a decode row, though it may be a prompt's last.
  int64_t rows() const {
    int64_t rows = 0;
    for (const Slice& slice : slices) rows += slice.count;
    return rows;
  }
  int64_t decode_rows() const {
    return std::count_if(slices.begin(), slices.end(),
                         [](const Slice& s) { return s.count == 1 && s.sample && s.guess == GuessRecord::kNone; });
  }
  int64_t guess_rows() const {
    return std::count_if(slices.begin(), slices.end(), [](const Slice& s) { return s.guess != GuessRecord::kNone; });
  }
  int64_t void_rows() const {
    return std::count_if(slices.begin(), slices.end(), [](const Slice& s) { return s.guess == GuessRecord::kVoid; });
  }

  uint64_t number = 0;
  bool shutdown = false;  // the last frame of a job, without rows
  std::vector<Slice> slices;
  std::vector<GrammarId> drop_grammars, define_grammars;
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
