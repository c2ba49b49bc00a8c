#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GUESS_MACHINE_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GUESS_MACHINE_H_

// A scheduler with guesses before simulated stages, advanced by hand.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/schedule/guess_feed.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/model_guesses.h"
#include "tests/unit/coordinator/schedule/scheduler_machine.h"

namespace stagecoach {

inline TokenId NoGuess(const Sequence&) { return kNoToken; }

// Wrong at these positions, right elsewhere.
inline std::function<TokenId(const Sequence&)> WrongAt(std::vector<int64_t> positions) {
  return [positions](const Sequence& sequence) {
    const bool wrong = std::find(positions.begin(), positions.end(), sequence.handed_out) != positions.end();
    return wrong ? WrongGuess(sequence) : RightGuess(sequence);
  };
}

// A scheduler before simulated stages that asks a test for guesses.
struct GuessMachine : ::testing::Test, GuessFeed {
  static SchedulerOptions Options() {
    return {{.max_num_seqs = 8,
             .policy = Policy::kInterleaved,
             .max_num_batched_tokens = 64,
             .prefill_chunk = 32,
             .block_tokens = 4,
             .prefix_caching = false},
            {.group_blocks = {64}, .context = 128, .micro_batches = 4, .max_open_tokens = 512, .most_guesses = 3}};
  }
  explicit GuessMachine(const SchedulerOptions& options = Options()) : machine_(options) {
    scheduler_.SetGuessFeed(this);
  }

  bool MayGuess(uint64_t number, int32_t in_flight) override {
    EXPECT_EQ(in_flight, scheduler_.in_flight());
    EXPECT_GE(number, next_number_);
    next_number_ = number;
    return may_guess_;
  }
  TokenId GuessFor(const Sequence& sequence) override {
    asked_.push_back(sequence.handed_out);
    return guess_(sequence);
  }

  // Computes the prompts, until all decode and nothing is in flight; then guesses have so many places.
  void Decode(const std::vector<SequenceSpec>& specs, int32_t places = 4) {
    scheduler_.SetGuessPlaces(0);
    for (const SequenceSpec& spec : specs) Add(spec);
    while (scheduler_.decoding() < static_cast<int64_t>(specs.size()) && !HasFailure()) {
      Fill();
      Confirm();
    }
    while (!machine_.results.empty()) Confirm();
    scheduler_.SetGuessPlaces(places);
  }
  void Add(const SequenceSpec& spec) {
    specs_[spec.id] = spec;
    outputs_[spec.id] = spec.output;
    machine_.Add(spec);
  }
  MicroBatch Submit() { return machine_.Submit(); }
  // Takes all there is.
  std::vector<MicroBatch> Fill() {
    std::vector<MicroBatch> batches;
    while (std::optional<MicroBatch> batch = machine_.TrySubmit()) batches.push_back(*std::move(batch));
    return batches;
  }
  std::vector<SequenceEvent> Confirm() {
    const std::vector<SequenceEvent> events = machine_.Confirm();
    for (const SequenceEvent& event : events) {
      for (const SampledToken& token : event.tokens) outputs_[event.sequence].push_back(token.token);
    }
    return events;
  }
  // The one event of the oldest micro-batch.
  SequenceEvent ConfirmOne() {
    std::vector<SequenceEvent> events = Confirm();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? SequenceEvent() : events[0];
  }
  // Every sequence then has the answer that it has alone, and everything was given back.
  void RunToTheEnd() {
    while (scheduler_.HasUnfinished() && !HasFailure()) {
      Fill();
      Confirm();
    }
    while (!machine_.results.empty()) EXPECT_THAT(Confirm(), IsEmpty());
    for (const auto& [id, spec] : specs_) {
      EXPECT_EQ(outputs_[id], ComputeAlone(spec, scheduler_.options().context).output) << "sequence " << id;
    }
    for (size_t group = 0; group < scheduler_.blocks().groups(); ++group) {
      EXPECT_EQ(scheduler_.blocks().used(group), 0);
    }
    EXPECT_EQ(scheduler_.blocks().slots().used(), 0);
  }

  Machine machine_;
  Scheduler& scheduler_ = machine_.scheduler;
  std::function<TokenId(const Sequence&)> guess_ = RightGuess;
  std::vector<int64_t> asked_;  // positions
  bool may_guess_ = true;
  uint64_t next_number_ = 0;
  std::map<SequenceId, SequenceSpec> specs_;
  std::map<SequenceId, std::vector<TokenId>> outputs_;
};

// Of the slices, in order.
inline std::vector<int32_t> Starts(const MicroBatch& batch) {
  std::vector<int32_t> starts;
  for (const SequenceSlice& slice : batch.slices) starts.push_back(slice.start);
  return starts;
}
inline int GuessesOf(const MicroBatch& batch) {
  return static_cast<int>(
      std::count_if(batch.slices.begin(), batch.slices.end(), [](const auto& s) { return s.guess; }));
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_SCHEDULE_GUESS_MACHINE_H_
