// The engine's loop with guesses: what it tells the front, the speculator and its meters of rows that were void.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/engine/engine.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/guess/speculator.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

TokenId TokenAt(int64_t position) { return static_cast<TokenId>(position % 50); }

constexpr uint32_t kVoidChecksum = 999;

// Judges guesses as a last stage does. A step takes 10 us on the one stage. Checksums of two layers: the row's position
// and ten times that, of void rows something else.
class JudgingPipeline : public Pipeline {
 public:
  int stages() const override { return 1; }
  absl::Status Submit(const MicroBatch& batch) override {
    StepResult result{.number = batch.number};
    std::vector<uint32_t> second_layer;
    for (const SequenceSlice& slice : batch.slices) {
      int64_t& tokens = tokens_[slice.sequence];
      const bool is_void = slice.guess && !GuessHolds(slice.start, slice.tokens[0], tokens, TokenAt(slice.start));
      for (int32_t position = slice.start; position < slice.start + slice.count; ++position) {
        result.layer_checksums.push_back(is_void ? kVoidChecksum : static_cast<uint32_t>(position));
        second_layer.push_back(10 * result.layer_checksums.back());
      }
      if (!slice.sample) continue;
      const int32_t next = slice.start + slice.count;
      if (!is_void) tokens = next + 1;
      result.sampled.push_back({.sequence = slice.sequence, .position = next});
      result.sampled.back().token = is_void ? kNoToken : TokenAt(next);
      result.sampled.back().is_void = is_void;
    }
    result.layer_checksums.insert(result.layer_checksums.end(), second_layer.begin(), second_layer.end());
    result.times = {{.stage = 0, .start_us = 100, .end_us = 110}};
    results_.push_back(std::move(result));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<StepResult>> Poll() override {
    if (results_.empty()) return std::optional<StepResult>();
    std::optional<StepResult> result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  std::deque<StepResult> results_;
  std::map<SequenceId, int64_t> tokens_;
};

// Wrong for every fifth position.
class MostlyRightGuesser : public Guesser {
 public:
  void Append(TokenId) override { ++tokens_; }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override {
    const int64_t position = tokens_ + static_cast<int64_t>(run.size());
    return Guess{.token = TokenAt(position % 5 == 0 ? position + 1 : position), .confidence = 0.8};
  }

 private:
  int64_t tokens_ = 0;
};

class CollectingFront : public Front {
 public:
  absl::StatusOr<std::optional<FrontCommand>> Next() override {
    if (commands.empty()) return std::optional<FrontCommand>();
    std::optional<FrontCommand> command = std::move(commands.front());
    commands.pop_front();
    return command;
  }
  absl::Status Publish(const RequestEvents& events) override {
    for (const RequestDelta& delta : events.deltas) {
      for (const SampledToken& token : delta.tokens) tokens[delta.request].push_back(token.token);
      for (const RowChecksums& rows : delta.checksums) checksums[delta.request].push_back(rows);
      if (delta.cost.has_value()) told[delta.request] = delta.cost->prediction;
    }
    for (const RequestEnd& end : events.ends) costs[end.request] = end.cost.prediction;
    ended += static_cast<int>(events.ends.size());
    return absl::OkStatus();
  }
  absl::Status Report(const EngineStatus&) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  bool Wait(int64_t) override { return false; }

  std::deque<FrontCommand> commands;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::map<RequestId, std::vector<RowChecksums>> checksums;
  std::map<RequestId, PredictionCost> told, costs;  // with its latest tokens that said, and at its end
  int ended = 0;
};

class SteppingClock : public EngineClock {
 public:
  int64_t NowUs() override { return now_us_ += 20; }
  void Pause(int64_t us) override { now_us_ += us; }

 private:
  int64_t now_us_ = 0;
};

struct EngineGuesses : ::testing::Test {
  EngineGuesses() {
    Speculator::Options guesses = {.suffix = false, .vocab = 100};
    guesses.more = [](const Sequence&) { return std::make_unique<MostlyRightGuesser>(); };
    speculator_ = std::make_unique<Speculator>(guesses);
    engine_ =
        std::make_unique<Engine>(&pipeline_, &scheduler_, &front_, &clock_, 100, nullptr, nullptr, speculator_.get());
    scheduler_.SetGuessPlaces(4);
    speculator_->SetRows(4, 0);
  }
  static SchedulerOptions Options() {
    return {{.max_num_seqs = 4, .block_tokens = 8},
            {.group_blocks = {64}, .context = 128, .micro_batches = 4, .max_open_tokens = 512, .most_guesses = 3}};
  }
  void Ask(RequestId request, int64_t tokens, std::vector<TokenId> prediction = {}) {
    SubmitCommand command;
    command.spec.prediction = std::move(prediction);
    command.request = request;
    command.spec.prompt = {1, 2, 3, 4};
    command.spec.max_new_tokens = tokens;
    front_.commands.emplace_back(std::move(command));
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(engine_->Step().ok());
  }

  JudgingPipeline pipeline_;
  CollectingFront front_;
  SteppingClock clock_;
  Scheduler scheduler_{Options()};
  std::unique_ptr<Speculator> speculator_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineGuesses, BringEveryTokenAndTheChecksumsOfTheRowsThatStand) {
  for (const RequestId request : {1, 2}) Ask(request, 40);
  while (front_.ended < 2) Steps(1);
  for (const RequestId request : {1, 2}) {
    ASSERT_EQ(front_.tokens[request].size(), 40u);
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(front_.tokens[request][i], TokenAt(static_cast<int64_t>(4 + i)));
    int32_t rows = 0;
    for (const RowChecksums& checksums : front_.checksums[request]) {
      EXPECT_EQ(checksums.start, rows);
      EXPECT_EQ(checksums.values.front(), static_cast<uint32_t>(rows));
      EXPECT_EQ(checksums.values.size(), static_cast<size_t>(2 * checksums.rows));
      rows += checksums.rows;
      EXPECT_EQ(checksums.values.back(), static_cast<uint32_t>(10 * (rows - 1)));
    }
    EXPECT_EQ(rows, 43) << "of each position one row, in order";
  }
  const EngineStatus status = engine_->Status();
  EXPECT_GT(status.counters.guesses_right, 40u);
  EXPECT_GT(status.counters.guesses_void, 10u);
  EXPECT_GT(status.stages[0].void_us, 0);
  EXPECT_LT(status.stages[0].void_us, status.stages[0].compute_us);
  EXPECT_EQ(speculator_->counts()[2].right, status.counters.guesses_right);
  EXPECT_EQ(scheduler_.CheckIntegrity(), absl::OkStatus());
}

// A front that ends an answer by itself, at a stop string, has nothing else to go by.
TEST_F(EngineGuesses, WhatBecameOfAPredictionIsToldWithTheTokensAndAtTheEnd) {
  std::vector<TokenId> prediction;
  for (int64_t position = 4; position < 34; ++position) prediction.push_back(TokenAt(position));
  prediction[12] = 49;
  Ask(1, 30, prediction);
  Ask(2, 30);
  while (front_.ended < 2) Steps(1);
  EXPECT_GT(front_.costs[1].accepted, 20);
  EXPECT_GE(front_.costs[1].rejected, 1);
  EXPECT_LE(front_.costs[1].accepted + front_.costs[1].rejected, 30);
  EXPECT_EQ(front_.told[1], front_.costs[1]);
  EXPECT_EQ(front_.costs[2], PredictionCost());
}

TEST_F(EngineGuesses, OfACancelledRequestAreForgotten) {
  Ask(1, 100);
  Ask(2, 30);
  Steps(12);
  EXPECT_GT(engine_->Status().in_flight, 0);
  front_.commands.emplace_back(CancelCommand{1});
  while (front_.ended < 2) Steps(1);
  Steps(8);
  EXPECT_LT(front_.tokens[1].size(), 100u);
  EXPECT_EQ(front_.tokens[2].size(), 30u);
  int32_t open = 0;
  for (const int32_t sequences : speculator_->shares()) open += sequences;
  EXPECT_EQ(open, 0);
  EXPECT_EQ(engine_->Status().in_flight, 0);
  EXPECT_EQ(scheduler_.blocks().used(0), 0);
}

TEST_F(EngineGuesses, InFlightAtAShutdownAreWaitedFor) {
  Ask(1, 100);
  Steps(10);
  front_.commands.emplace_back(ShutdownCommand{});
  Steps(1);
  EXPECT_TRUE(engine_->shutting_down());
  EXPECT_GT(engine_->Status().in_flight, 0);
  ASSERT_TRUE(engine_->ShutDownStages().ok());
  EXPECT_EQ(engine_->Status().in_flight, 0);
}

}  // namespace
}  // namespace stagecoach
