// A scheduler that asks a speculator, before simulated stages, through random histories.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "coordinator/guess/prediction_guesser.h"
#include "coordinator/guess/speculator.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/guess/guess_line.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

constexpr int64_t kContext = 96;

class SpeculatedStream {
 public:
  SpeculatedStream(uint32_t seed, int32_t blocks)
      : random_(seed),
        options_{{.max_num_seqs = 6,
                  .policy = Policy::kInterleaved,
                  .max_num_batched_tokens = 48,
                  .prefill_chunk = 16,
                  .block_tokens = 4,
                  .prefix_caching = true},
                 {.group_blocks = {blocks},
                  .context = kContext,
                  .micro_batches = 4,
                  .max_open_tokens = 1024,
                  .most_guesses = 3}},
        scheduler_(options_),
        stages_(options_),
        speculator_({.vocab = kSimulatedVocabulary}) {
    scheduler_.SetGuessFeed(&speculator_);
  }

  void Run(int arrivals) {
    while ((arrivals > 0 || scheduler_.HasUnfinished() || !results_.empty()) && !::testing::Test::HasFailure()) {
      if (arrivals > 0 && Chance(5)) {
        Arrive();
        --arrivals;
      }
      if (Chance(10)) Plan();
      if (Chance(60)) Disturb();
      Chance(2) ? Submit() : Confirm();
      const absl::Status status = scheduler_.CheckIntegrity();
      ASSERT_TRUE(status.ok()) << status;
    }
    Finish();
  }

  uint64_t right() const { return scheduler_.counters().guesses_right; }
  uint64_t wrong() const { return wrong_; }

 private:
  bool Chance(int one_in) { return random_() % static_cast<uint32_t>(one_in) == 0; }

  // The prediction is its answer with some changes, or that of another prompt.
  void Arrive() {
    SequenceSpec spec = testing::SpecOf(next_id_++, {}, Chance(2) ? "a" : "b");
    for (uint32_t left = 1 + random_() % 40; left > 0; --left) spec.prompt.push_back(AnyToken());
    spec.max_new_tokens = 1 + static_cast<int64_t>(random_() % 50);
    if (Chance(4)) spec.stop_tokens = {AnyToken()};
    const ExpectedAnswer expected = ComputeAlone(spec, kContext);
    if (!Chance(4)) spec.prediction = expected.output;
    for (TokenId& token : spec.prediction) token = Chance(8) ? AnyToken() : token;
    if (Chance(4)) spec.output.assign(expected.output.begin(), expected.output.begin() + expected.output.size() / 2);
    if (spec.output.size() == expected.output.size()) spec.output.clear();
    ASSERT_TRUE(scheduler_.Add(spec).ok());
    speculator_.Open(*scheduler_.Find(spec.id), std::nullopt, spec.prediction);
    outputs_[spec.id] = spec.output;
    specs_[spec.id] = std::move(spec);
  }
  TokenId AnyToken() { return static_cast<TokenId>(random_() % kSimulatedVocabulary); }

  void Plan() {
    speculator_.SetRows(static_cast<int32_t>(1 + random_() % 4), static_cast<int32_t>(random_() % 8));
    scheduler_.SetGuessPlaces(static_cast<int32_t>(random_() % 5));
    scheduler_.SetDecodeGroups(static_cast<int32_t>(1 + random_() % 4));
  }

  void Disturb() {
    if (specs_.empty()) return;
    const SequenceId id = std::next(specs_.begin(), static_cast<int64_t>(random_() % specs_.size()))->first;
    if (Chance(2)) {
      scheduler_.Preempt(id).IgnoreError();  // if it runs
      return;
    }
    ASSERT_TRUE(scheduler_.Cancel(id).ok());
    speculator_.Close(id);
    specs_.erase(id);
  }

  void Submit() {
    const std::optional<MicroBatch> batch = scheduler_.Next();
    if (!batch) return;
    absl::StatusOr<StepResult> result = stages_.Run(*batch);
    ASSERT_TRUE(result.ok()) << result.status();
    results_.push_back(*std::move(result));
  }

  void Confirm() {
    if (results_.empty()) return;
    const auto events = scheduler_.Confirm(results_.front());
    results_.pop_front();
    ASSERT_TRUE(events.ok()) << events.status();
    for (const SequenceEvent& event : *events) {
      std::vector<TokenId>& output = outputs_[event.sequence];
      for (const SampledToken& token : event.tokens) output.push_back(token.token);
      wrong_ += event.guess == SequenceEvent::Guess::kWrong ? 1 : 0;
      const PredictionCost cost = speculator_.Confirmed(event, scheduler_.Find(event.sequence));
      if (event.finished) CheckAnswer(event.sequence, cost);
    }
  }

  // As without guesses; so are the counts of its prediction.
  void CheckAnswer(SequenceId id, const PredictionCost& cost) {
    const SequenceSpec& spec = specs_.at(id);
    EXPECT_EQ(outputs_[id], ComputeAlone(spec, kContext).output) << "sequence " << id;
    PredictionGuesser alone(spec.prediction);
    alone.CatchUp(kContext);
    for (const TokenId token : outputs_[id]) alone.Append(token);
    EXPECT_EQ(std::pair(cost.accepted, cost.rejected), std::pair(alone.accepted(), alone.rejected()));
    specs_.erase(id);
  }

  void Finish() {
    EXPECT_THAT(specs_, IsEmpty());
    EXPECT_EQ(speculator_.shares(), GuessShares{});
    EXPECT_EQ(scheduler_.blocks().used(0), 0);
    uint64_t tried = 0, right = 0;
    for (const GuesserCounts& counts : speculator_.counts()) {
      tried += counts.tried;
      right += counts.right;
    }
    EXPECT_EQ(right, scheduler_.counters().guesses_right);
    EXPECT_EQ(tried, right + wrong_);
  }

  std::mt19937 random_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  SimulatedStages stages_;
  Speculator speculator_;
  std::deque<StepResult> results_;
  std::map<SequenceId, SequenceSpec> specs_;  // that have not ended
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  SequenceId next_id_ = 1;
  uint64_t wrong_ = 0;
};

TEST(SpeculatedStream, GivesTheAnswersThatThereAreWithoutGuessesAndCountsWhatBecameOfThem) {
  uint64_t right = 0, wrong = 0;
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SpeculatedStream stream(seed, seed % 2 == 0 ? 200 : 40);
    stream.Run(15);
    right += stream.right();
    wrong += stream.wrong();
  }
  EXPECT_GT(right, 800u);
  EXPECT_GT(wrong, 300u);
}

}  // namespace
}  // namespace stagecoach
