// The draft against a pipeline that holds its stream to what a stage holds it to: frames, block and slot tables, and
// tails that follow what known rows say. Its model is a function of the history, so that all guesses are known.

#include "coordinator/guess/draft/draft_runner.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/wire/frame.h"
#include "coordinator/pipeline/roster.h"
#include "stage_worker/kv/sequence_table.h"
#include "stage_worker/kv/slot_table.h"
#include "stage_worker/sample/sampling_tails.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int64_t kVocab = 40;
constexpr TokenId kEndToken = 7;
constexpr int64_t kManyTokens = 1000;

TokenId DraftedBehind(absl::Span<const TokenId> history) {
  uint64_t mixed = history.size();
  for (const TokenId token : history.last(std::min<size_t>(history.size(), 3))) {
    mixed = MixBits(mixed * 64 + static_cast<uint64_t>(token));
  }
  return static_cast<TokenId>(mixed % static_cast<uint64_t>(kVocab));
}

FrameLimits LimitsOfDraft(const DraftRunner::Options& options) {
  FrameLimits limits;
  limits.job = {.run_id = 5, .epoch = 2};
  limits.stages = 1;
  limits.hidden = 16;
  limits.vocab = options.vocab;
  limits.context = options.context;
  limits.group_blocks = options.group_blocks;
  limits.group_windows = options.group_windows;
  limits.state_slots = options.state_slots;
  limits.most_guesses = options.most_guesses;
  limits.block_tokens = options.block_tokens;
  limits.max_rows = options.rows;
  limits.max_slices = options.sequences;
  limits.max_open_tokens = options.context;
  return limits;
}

// The draft's stage. A result is there when it was polled for `polls` times.
class ScriptedDraft : public Pipeline {
 public:
  explicit ScriptedDraft(const DraftRunner::Options& options)
      : limits_(LimitsOfDraft(options)),
        table_(options.block_tokens, options.group_blocks, options.context, options.group_windows, options.most_guesses,
               /*cuts_history=*/true),
        slots_(options.state_slots) {}

  int stages() const override { return 1; }
  absl::Status Submit(const MicroBatch& batch) override {
    EXPECT_FALSE(result_.has_value()) << "one micro-batch is in flight";
    CheckFrame(batch);
    const absl::Status taken = table_.Validate(batch), slots = slots_.Validate(batch);
    EXPECT_TRUE(taken.ok()) << taken;
    EXPECT_TRUE(slots.ok()) << slots;
    if (!taken.ok() || !slots.ok()) return absl::InternalError("refused");
    table_.Commit(batch);
    slots_.Commit(batch);
    for (const SequenceId id : batch.free) tails_.erase(id);
    for (const GrammarId id : batch.drop_grammars) grammars_.erase(id);
    for (const GrammarDefinition& definition : batch.define_grammars) grammars_.insert(definition.id);
    for (const OpenSequence& open : batch.open) {
      EXPECT_TRUE(open.grammar == kNoGrammar || grammars_.contains(open.grammar));
      tails_.emplace(open.sequence, SamplingTail(open, std::nullopt, 1 + limits_.most_guesses));
    }
    result_ = StepResult{.number = batch.number};
    for (const SequenceSlice& slice : batch.slices) {
      SamplingTail& tail = tails_.at(slice.sequence);
      EXPECT_LE(slice.start, tail.history().size());
      tail.Follow(slice.start, slice.tokens, slice.sample);
      rows_ += slice.count;
      if (!slice.sample) continue;
      EXPECT_EQ(slice.start + slice.count, tail.history().size());
      const TokenId token = DraftedBehind(tail.history().tokens());
      result_->sampled.push_back({.sequence = slice.sequence, .position = slice.start + slice.count, .token = token});
      tail.Append(token);
    }
    ++submitted_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<StepResult>> Poll() override {
    if (!result_.has_value() || ++polled_ < polls) return std::optional<StepResult>();
    polled_ = 0;
    return std::exchange(result_, std::nullopt);
  }

  bool idle() const { return !result_.has_value(); }
  size_t open() const { return table_.size(); }
  int64_t rows() const { return rows_; }
  int submitted() const { return submitted_; }
  int polls = 1;

 private:
  void CheckFrame(const MicroBatch& batch) {
    FrameBuffer buffer(limits_.MaxStepHeaderBytes(), 0);
    const absl::Status encoded = EncodeStep(limits_, StepFrame{.batch = batch}, &buffer);
    ASSERT_TRUE(encoded.ok()) << encoded;
    const auto decoded = DecodeStep(limits_, buffer.message(), batch.number, /*expect_hidden=*/false);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->batch, batch);
  }

  const FrameLimits limits_;
  SequenceTable table_;
  SlotTable slots_;
  absl::flat_hash_map<SequenceId, SamplingTail> tails_;
  std::set<GrammarId> grammars_;
  std::optional<StepResult> result_;
  int polled_ = 0, submitted_ = 0;
  int64_t rows_ = 0;
};

DraftRunner::Options SmallDraft() {
  return {.vocab = kVocab,
          .context = 200,
          .block_tokens = 16,
          .group_blocks = {60},
          .sequences = 3,
          .rows = 12,
          .most_guesses = 3};
}

// A request, its true tokens, and its guesser as the speculator treats it.
class DraftedRequest {
 public:
  DraftedRequest(DraftRunner* runner, std::vector<TokenId> prompt, std::vector<TokenId> stops = {},
                 GrammarIds::Grammar* grammar = nullptr)
      : tokens_(prompt) {
    SequenceSpec spec;
    spec.prompt = std::move(prompt);
    spec.stop_tokens = stops;
    spec.max_new_tokens = kManyTokens;
    ends_ = std::move(stops);
    Sequence sequence(std::move(spec));
    sequence.grammar = grammar;
    guesser_ = runner->Open(sequence);
    for (const TokenId token : tokens_) guesser_->Append(token);
  }
  void Confirm(TokenId token) {
    tokens_.push_back(token);
    guesser_->Append(token);
  }
  // What the draft alone would draw behind the true tokens and a run of its own: the run's length.
  size_t ExpectItsOwnRun() const {
    std::vector<TokenId> history = tokens_, run;
    while (const std::optional<Guess> guess = guesser_->Next(run)) {
      EXPECT_EQ(guess->token, DraftedBehind(history)) << "position " << history.size();
      EXPECT_GT(guess->confidence, 0);
      EXPECT_LT(guess->confidence, 1);
      if (run.size() > 20) break;
      history.push_back(guess->token);
      run.push_back(guess->token);
      if (std::find(ends_.begin(), ends_.end(), guess->token) != ends_.end()) {
        EXPECT_FALSE(guesser_->Next(run).has_value()) << "behind the end";
      }
    }
    std::vector<TokenId> other = run;
    if (!other.empty()) {
      other[0] = other[0] == 0 ? 1 : 0;
      EXPECT_FALSE(guesser_->Next(other).has_value()) << "a run that it has not drawn";
    }
    return run.size();
  }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const Guesser& guesser() const { return *guesser_; }

 private:
  std::vector<TokenId> tokens_;
  std::vector<TokenId> ends_;
  std::unique_ptr<Guesser> guesser_;
};

std::vector<TokenId> RandomPrompt(std::mt19937_64* random, size_t size) {
  std::vector<TokenId> prompt(size);
  for (TokenId& token : prompt) token = static_cast<TokenId>((*random)() % static_cast<uint64_t>(kVocab));
  return prompt;
}

void PollUntilQuiet(DraftRunner* runner, ScriptedDraft* draft) {
  int submitted = -1;
  while (submitted != draft->submitted() || !draft->idle()) {
    submitted = draft->submitted();
    const absl::StatusOr<bool> polled = runner->Poll();
    ASSERT_TRUE(polled.ok()) << polled.status();
  }
}

TEST(DraftRunner, DrawsAsFarAheadAsItIsToldAndStops) {
  ScriptedDraft draft(SmallDraft());
  DraftRunner runner(&draft, SmallDraft());
  DraftedRequest request(&runner, {1, 2, 3, 4, 5});
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.ExpectItsOwnRun(), 1u);
  runner.SetAhead(100);  // as many as rows of a sequence may be in flight
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.ExpectItsOwnRun(), 4u);
  EXPECT_EQ(draft.rows(), 5 + 3);
  request.Confirm(DraftedBehind(request.tokens()));
  EXPECT_EQ(request.ExpectItsOwnRun(), 3u);
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.ExpectItsOwnRun(), 4u);
  EXPECT_EQ(draft.rows(), 5 + 4) << "a row a token where it is right";
  request.Confirm((DraftedBehind(request.tokens()) + 1) % kVocab);
  EXPECT_EQ(request.ExpectItsOwnRun(), 0u);
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.ExpectItsOwnRun(), 4u);
  EXPECT_EQ(draft.rows(), 5 + 4 + 4) << "all behind a miss are drawn anew";
}

TEST(DraftRunner, DrawsSeldomWhereNobodyGuessesAndKeepsUpInChunks) {
  ScriptedDraft draft(SmallDraft());
  DraftRunner runner(&draft, SmallDraft());
  runner.SetAhead(0);
  DraftedRequest request(&runner, {1, 2, 3, 4, 5});
  EXPECT_FALSE(request.guesser().rests()) << "it has no place yet";
  size_t guesses = 0;
  for (int64_t i = 0; i < 4 * DraftRunner::kRest; ++i) {
    PollUntilQuiet(&runner, &draft);
    guesses += request.ExpectItsOwnRun();
    request.Confirm((DraftedBehind(request.tokens()) + i % 2) % kVocab);
  }
  EXPECT_EQ(guesses, 4u);
  EXPECT_TRUE(request.guesser().rests());
  EXPECT_EQ(draft.submitted(), 1 + 3 * 2) << "of at most 12 rows each";
  runner.SetAhead(4);
  EXPECT_FALSE(request.guesser().rests());
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.ExpectItsOwnRun(), 4u);
  EXPECT_EQ(draft.rows(), 5 + 4 * DraftRunner::kRest + 3);
}

struct DraftCase {
  const char* name;
  DraftRunner::Options options;
};
std::vector<DraftCase> DraftCases() {
  DraftRunner::Options plain = SmallDraft(), windows = plain, states = plain, tight = plain;
  windows.group_blocks = {60, 12};
  windows.group_windows = {0, 20};
  states.state_slots = 3 * 4;
  tight.group_blocks = {13};
  return {{"plain", plain}, {"windows", windows}, {"states", states}, {"tight", tight}};
}

// Requests come and go; the model agrees with the draft at random; results are slow at random.
TEST(DraftRunner, SaysWhatTheDraftAloneWouldDrawWhateverTheModelGave) {
  for (const DraftCase& test : DraftCases()) {
    int64_t guesses = 0, right = 0, confirmed = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(absl::StrCat(test.name, ", seed ", seed));
      std::mt19937_64 random(seed);
      ScriptedDraft draft(test.options);
      DraftRunner runner(&draft, test.options);
      std::vector<std::unique_ptr<DraftedRequest>> requests;
      const uint64_t agreement = seed % 4;  // of 3
      for (int step = 0; step < 400 && !::testing::Test::HasFailure(); ++step) {
        if (random() % 40 == 0) runner.SetAhead(static_cast<int32_t>(random() % 6));
        if (random() % 16 == 0 && requests.size() < 5) {
          const std::vector<TokenId> stops =
              random() % 2 == 0 ? std::vector<TokenId>{kEndToken} : std::vector<TokenId>{};
          requests.push_back(
              std::make_unique<DraftedRequest>(&runner, RandomPrompt(&random, 1 + random() % 60), stops));
        }
        if (random() % 60 == 0 && !requests.empty()) {
          requests.erase(requests.begin() + static_cast<int64_t>(random() % requests.size()));
        }
        for (const auto& request : requests) {
          guesses += static_cast<int64_t>(request->ExpectItsOwnRun());
          if (random() % 3 != 0) continue;
          const TokenId own = DraftedBehind(request->tokens());
          const std::optional<Guess> guess = request->guesser().Next({});
          const bool agrees = random() % 3 < agreement;
          request->Confirm(agrees ? own : static_cast<TokenId>(random() % static_cast<uint64_t>(kVocab)));
          ++confirmed;
          right += guess.has_value() && guess->token == request->tokens().back() ? 1 : 0;
        }
        draft.polls = 1 + static_cast<int>(random() % 3);
        ASSERT_TRUE(runner.Poll().ok());
      }
      // With a request left that has rows to send, the others' places are free again.
      requests.clear();
      DraftedRequest last(&runner, RandomPrompt(&random, 5));
      PollUntilQuiet(&runner, &draft);
      EXPECT_EQ(draft.open(), 1u);
      EXPECT_GE(last.ExpectItsOwnRun(), 1u);
      runner.ShutDown();
      for (int i = 0; i < 10 && !runner.ended(); ++i) ASSERT_TRUE(runner.Poll().ok());
      EXPECT_TRUE(runner.ended());
    }
    EXPECT_GT(guesses, 5000) << test.name;
    EXPECT_GT(right, confirmed / 10) << test.name;
  }
}

TEST(DraftRunner, GivesUpASequenceThatItCannotFollowAndGoesOnWithOthers) {
  DraftRunner::Options options = SmallDraft();
  options.context = 24;
  ScriptedDraft draft(options);
  DraftRunner runner(&draft, options);
  std::mt19937_64 random(1);
  DraftedRequest longer(&runner, RandomPrompt(&random, 24)), grows(&runner, {1, 2, 3});
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(draft.open(), 1u);
  EXPECT_EQ(longer.ExpectItsOwnRun(), 0u);
  while (grows.tokens().size() < 30) {
    EXPECT_EQ(grows.ExpectItsOwnRun(), grows.tokens().size() <= 24 ? 1u : 0u) << grows.tokens().size();
    grows.Confirm(DraftedBehind(grows.tokens()));
    PollUntilQuiet(&runner, &draft);
  }
  DraftedRequest other(&runner, {4});
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(other.ExpectItsOwnRun(), 1u);
  other.Confirm(kVocab + 3);
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(other.ExpectItsOwnRun(), 0u);
}

TEST(DraftRunner, TakesNoRequestWhoseTokensItCannotGuess) {
  ScriptedDraft draft(SmallDraft());
  DraftRunner runner(&draft, SmallDraft());
  const auto is_taken = [&](std::vector<TokenId> prompt, std::vector<TokenId> output, int64_t max_new_tokens) {
    SequenceSpec spec;
    spec.prompt = std::move(prompt);
    spec.output = std::move(output);
    spec.max_new_tokens = max_new_tokens;
    return runner.Open(Sequence(std::move(spec))) != nullptr;
  };
  EXPECT_TRUE(is_taken({1, 2}, {}, 3)) << "the second is guessed, and its row gives the third";
  EXPECT_FALSE(is_taken({1, 2}, {}, 2));
  EXPECT_TRUE(is_taken({1, 2}, {3, 4}, 5)) << "after a loss";
  EXPECT_FALSE(is_taken({1, 2}, {3, 4}, 4));
  EXPECT_FALSE(is_taken({1, kVocab}, {}, kManyTokens)) << "padding";
  EXPECT_FALSE(is_taken({1, 2}, {kVocab}, kManyTokens));
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(draft.rows(), 0);
}

// Whoever has an answer asks again where this grows: results of others are none of its business.
TEST(DraftRunner, OnlyWhatIsDrawnForARequestChangesItsAnswers) {
  ScriptedDraft draft(SmallDraft());
  DraftRunner runner(&draft, SmallDraft());
  runner.SetAhead(2);
  DraftedRequest request(&runner, {1, 2, 3});
  PollUntilQuiet(&runner, &draft);
  const uint64_t version = request.guesser().version();
  EXPECT_EQ(version, 2u);
  DraftedRequest other(&runner, {4, 5, 6});
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(other.ExpectItsOwnRun(), 2u);
  EXPECT_EQ(request.guesser().version(), version);
  request.Confirm(DraftedBehind(request.tokens()));
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(request.guesser().version(), version + 1);
}

TEST(DraftRunner, ARequestWaitsForRoomForItsGrammarOnlyWhereNobodyHasThat) {
  GrammarIds grammars;  // the job's
  GrammarIds::Grammar* const large = grammars.Add(std::string(kMaxDefinitionBytes, 'a'));
  GrammarIds::Grammar* const other = grammars.Add(std::string(kMaxDefinitionBytes - 9, 'b'));
  GrammarIds::Grammar* const small = grammars.Add(std::string(10, 'c'));
  DraftRunner::Options options = SmallDraft();
  options.sequences = 5;
  ScriptedDraft draft(options);
  DraftRunner runner(&draft, options);
  DraftedRequest first(&runner, {1}, {}, large), second(&runner, {2}, {}, other), third(&runner, {3}, {}, large);
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(draft.open(), 3u);
  auto fourth = std::make_unique<DraftedRequest>(&runner, std::vector<TokenId>{4}, std::vector<TokenId>{}, small);
  DraftedRequest fifth(&runner, {5});
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(draft.open(), 3u);
  fourth.reset();
  PollUntilQuiet(&runner, &draft);
  EXPECT_EQ(draft.open(), 4u);
  EXPECT_EQ(fifth.ExpectItsOwnRun(), 1u);
}

// A pipeline whose results are not of what it was given.
class WrongDraft : public ScriptedDraft {
 public:
  WrongDraft(const DraftRunner::Options& options, std::function<void(StepResult*)> change)
      : ScriptedDraft(options), change_(std::move(change)) {}
  absl::StatusOr<std::optional<StepResult>> Poll() override {
    auto result = ScriptedDraft::Poll();
    if (result->has_value()) change_(&**result);
    return result;
  }

 private:
  const std::function<void(StepResult*)> change_;
};

TEST(DraftRunner, TakesAResultOfSomethingElseForALossOfTheDraft) {
  const auto refused = [](std::function<void(StepResult*)> change, const std::string& why) {
    DraftRunner::Options options = SmallDraft();
    options.stage = 4;
    WrongDraft draft(options, std::move(change));
    DraftRunner runner(&draft, options);
    DraftedRequest request(&runner, {1, 2, 3});
    ASSERT_TRUE(runner.Poll().ok());
    const absl::Status status = runner.Poll().status();
    EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kUnavailable,
                                          AllOf(HasSubstr("the draft: it sent a result"), HasSubstr(why))));
    EXPECT_EQ(LostStage(status), 4) << "so that it is counted";
  };
  refused([](StepResult* result) { ++result->number; }, "of micro-batch 1");
  refused([](StepResult* result) { result->sampled.clear(); }, "it lacks the token of sequence 1");
  refused([](StepResult* result) { ++result->sampled.at(0).position; },
          "a token of sequence 1 for position 4, expected one of sequence 1 for position 3");
  refused([](StepResult* result) { result->sampled.push_back({.sequence = 2, .position = 9}); },
          "a token of sequence 2 too many");
}

TEST(DraftRunner, MeasuresTheTimeOfAGuess) {
  int64_t now_us = 0;
  ScriptedDraft draft(SmallDraft());
  DraftRunner runner(&draft, SmallDraft(), [&] { return now_us; });
  runner.SetAhead(4);
  DraftedRequest request(&runner, {1, 2, 3});
  ASSERT_TRUE(runner.Poll().ok());
  now_us = 5000;  // the prompt
  ASSERT_TRUE(runner.Poll().ok());
  EXPECT_EQ(runner.guess_us(), 0);
  now_us += 300;
  ASSERT_TRUE(runner.Poll().ok());
  EXPECT_EQ(runner.guess_us(), 300);
  now_us += 460;
  ASSERT_TRUE(runner.Poll().ok());
  EXPECT_EQ(runner.guess_us(), 310);
}

}  // namespace
}  // namespace stagecoach
