// Guesses change no result: whatever was guessed, and however often rows went back, known rows and guesses that hold
// give the bits of a run without guesses, and what does not hold gives nothing.

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

constexpr int32_t kMostGuesses = 3;
constexpr size_t kOutput = 24;

// A prompt that ends before a block does, and how it is sampled.
struct GuessedRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};

std::vector<GuessedRequest> GuessedRequests() {
  std::vector<GuessedRequest> requests(2);
  for (int32_t i = 0; i < 27; ++i) requests[0].prompt.push_back((37 * i + 5) % 300);
  requests[0].sampling = {.logprobs = 2};
  requests[1].prompt = {7, 8, 9};
  requests[1].sampling = {
      .temperature = 0.8f, .repeat_penalty = 1.3f, .presence_penalty = 0.5f, .seed = 11, .logprobs = 3};
  return requests;
}

// What a row gave: its hidden state behind the last layer, and its token.
struct RowResult {
  std::vector<uint32_t> hidden;  // its bits
  SampledToken sampled;
  friend bool operator==(const RowResult&, const RowResult&) = default;
};

std::vector<uint32_t> HiddenOf(const PipelineRig& rig, size_t row, size_t rows) {
  std::vector<uint32_t> bits(rig.hidden().size() / rows);
  std::memcpy(bits.data(), rig.hidden().data() + row * bits.size(), bits.size() * sizeof(float));
  return bits;
}

// The answers without guesses, a row each.
std::vector<std::vector<RowResult>> Answers(std::shared_ptr<const ModelDescription> model) {
  std::vector<std::vector<RowResult>> answers;
  for (const GuessedRequest& request : GuessedRequests()) {
    PipelineRig rig(model, {});
    std::vector<RowResult>& rows = answers.emplace_back();
    std::vector<TokenId> tokens = request.prompt;
    const SequenceId sequence = rig.Open(tokens, request.sampling);
    while (rows.size() < kOutput) {
      rig.Feed(sequence, tokens, true);
      const SampledToken sampled = rig.Step().sampled.at(0);
      rows.push_back({HiddenOf(rig, tokens.size() - 1, tokens.size()), sampled});
      rows.back().sampled.sequence = 0;
      tokens = {sampled.token};
    }
  }
  return answers;
}

// Requests whose rows are guessed ahead, half of them wrongly, and whose results are looked at some steps later.
class GuessedRun {
 public:
  GuessedRun(std::shared_ptr<const ModelDescription> model, const RigOptions& options, uint64_t seed,
             const std::vector<std::vector<RowResult>>& answers)
      : random_(seed), vocab_(static_cast<TokenId>(model->hyper.vocab)), answers_(answers), rig_(model, options) {
    for (const GuessedRequest& request : GuessedRequests()) {
      Run& run = runs_.emplace_back();
      run.prompt = static_cast<int32_t>(request.prompt.size());
      run.tokens = request.prompt;
      run.sequence = rig_.Open(request.prompt, request.sampling);
      rig_.Feed(run.sequence, request.prompt, true);
      const SampledToken sampled = rig_.Step().sampled.at(0);
      run.tokens.push_back(sampled.token);
    }
  }

  void Step() {
    std::vector<Sent> sent;
    for (Run& run : runs_) {
      if (run.done()) continue;
      if (run.ready) {
        rig_.Feed(run.sequence, {run.tokens.back()}, true);
        sent.push_back({&run, run.At(run.tokens.size() - 1), run.tokens.back(), false});
        run.ready = false;
      } else if (run.in_flight.size() <= kMostGuesses && run.guesses.size() < kMostGuesses && random_() % 4 != 0) {
        const size_t position = run.tokens.size() + run.guesses.size();
        const TokenId guess = GuessAt(run, position);
        run.guesses.push_back(guess);
        rig_.Guess(run.sequence, guess);
        sent.push_back({&run, run.At(position), guess, true});
      }
    }
    if (!sent.empty()) {
      const StepResult result = rig_.Step();
      ASSERT_EQ(result.sampled.size(), sent.size());
      for (size_t i = 0; i < sent.size(); ++i) {
        sent[i].result = {HiddenOf(rig_, i, sent.size()), result.sampled[i]};
        sent[i].run->in_flight.push_back(sent[i]);
      }
    }
    for (Run& run : runs_) {
      while (!run.in_flight.empty() && random_() % 3 == 0) TakeResult(&run);
    }
  }

  bool done() const {
    return std::all_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.done(); });
  }
  int held() const { return held_; }
  int voids() const { return voids_; }

 private:
  struct Run;
  struct Sent {
    Run* run = nullptr;
    size_t row = 0;  // of the answer
    TokenId token = kNoToken;
    bool guess = false;
    RowResult result;
  };
  struct Run {
    SequenceId sequence = 0;
    int32_t prompt = 0;
    std::vector<TokenId> tokens;
    std::vector<TokenId> guesses;
    std::deque<Sent> in_flight;
    bool ready = true;
    size_t At(size_t position) const { return position + 1 - static_cast<size_t>(prompt); }
    bool done() const { return At(tokens.size()) + kMostGuesses >= kOutput - 1; }
  };

  TokenId GuessAt(const Run& run, size_t position) {
    const auto& answer = answers_[static_cast<size_t>(&run - runs_.data())];
    const TokenId right = answer.at(run.At(position) - 1).sampled.token;
    return random_() % 3 != 0 ? right : static_cast<TokenId>(random_() % static_cast<uint64_t>(vocab_));
  }

  void TakeResult(Run* run) {
    const Sent sent = run->in_flight.front();
    run->in_flight.pop_front();
    SampledToken sampled = sent.result.sampled;
    EXPECT_EQ(sampled.sequence, run->sequence);
    const auto position = static_cast<int32_t>(sent.row) + run->prompt - 1;
    const bool holds =
        !sent.guess || GuessHolds(position, sent.token, static_cast<int64_t>(run->tokens.size()), run->tokens.back());
    if (!holds) {
      ++voids_;
      EXPECT_EQ(sampled, (SampledToken{.sequence = run->sequence, .position = position + 1, .is_void = true}));
      return;
    }
    held_ += sent.guess ? 1 : 0;
    sampled.sequence = 0;
    const auto& answer = answers_[static_cast<size_t>(run - runs_.data())];
    EXPECT_EQ((RowResult{sent.result.hidden, sampled}), answer.at(sent.row)) << "position " << position;
    run->tokens.push_back(sampled.token);
    if (run->guesses.empty()) {
      run->ready = true;
    } else if (run->guesses.front() == sampled.token) {
      rig_.Hold(run->sequence);
      run->guesses.erase(run->guesses.begin());
    } else {
      rig_.Miss(run->sequence);
      run->guesses.clear();
      run->ready = true;
    }
  }

  std::mt19937_64 random_;
  const TokenId vocab_;
  const std::vector<std::vector<RowResult>>& answers_;
  PipelineRig rig_;
  std::vector<Run> runs_;
  int held_ = 0, voids_ = 0;
};

// Plain attention, windows with sinks, latent attention, delta nets.
class GuessedRows : public ::testing::TestWithParam<std::string> {};

TEST_P(GuessedRows, ThatHoldAndKnownRowsGiveTheBitsOfARunWithoutThem) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), TinyArchitecture(GetParam()))).value();
  const std::vector<std::vector<RowResult>> answers = Answers(model);
  int held = 0, voids = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    const RigOptions options = {.stages = static_cast<int>(seed), .threads = 2, .most_guesses = kMostGuesses};
    GuessedRun run(model, options, seed, answers);
    while (!run.done() && !HasFailure()) run.Step();
    held += run.held();
    voids += run.voids();
  }
  EXPECT_GT(held, 30);
  EXPECT_GT(voids, 30);
}

INSTANTIATE_TEST_SUITE_P(Models, GuessedRows, ::testing::Values("qwen3", "gpt-oss", "deepseek2", "qwen35", "qwen3next"),
                         ArchitectureTestName);

constexpr TokenId DigitToken(char digit) { return digit - 33; }  // printable bytes come first

TEST(VoidRow, HasNoHeadAndNoMaskAndLeavesTheSequenceAsItIs) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  std::vector<SampledToken> without;
  for (const bool guesses : {false, true}) {
    PipelineRig rig(model, {.most_guesses = kMostGuesses});
    const std::vector<TokenId> prompt = {5, 6, 7};
    const SequenceId sequence = rig.Open(prompt, {.presence_penalty = 1, .logprobs = 2});
    rig.batch().define_grammars = {{3, RunOfBytes('0', '9', 20)}};
    rig.batch().open.back().grammar = 3;
    std::vector<SampledToken> sampled;
    std::vector<TokenId> tokens = prompt;
    for (int i = 0; i < 4; ++i) {
      rig.Feed(sequence, tokens, true);
      sampled.push_back(rig.Step().sampled.at(0));
      tokens = {sampled.back().token};
      EXPECT_GE(tokens[0], DigitToken('0'));
      EXPECT_LE(tokens[0], DigitToken('9'));
      if (!guesses) continue;
      rig.stage(0).TakeAccount();
      const uint64_t masks = rig.counters(0).masks.ns + rig.counters(0).masks.hits;
      for (const TokenId wrong : {tokens[0] == 20 ? 21 : 20, 20}) {  // the second one stands on the first
        rig.Guess(sequence, wrong);
        EXPECT_TRUE(rig.Step().sampled.at(0).is_void);
      }
      EXPECT_EQ(rig.counters(0).masks.ns + rig.counters(0).masks.hits, masks);
      EXPECT_EQ(rig.stage(0).TakeAccount()[static_cast<size_t>(StepPart::kHead)].bytes, 0);
      rig.Miss(sequence);
    }
    if (guesses) {
      EXPECT_EQ(sampled, without);
    }
    without = sampled;
  }
}

TEST(VoidRow, IsJudgedByItsTokenWithoutWhichAGuessIsRefused) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  StageCounters counters;
  const StageConfig config = {.first_layer = 2,
                              .last_layer = 4,
                              .owns_head = true,
                              .group_blocks = {8},
                              .most_guesses = kMostGuesses,
                              .context = 64,
                              .max_rows = 16,
                              .max_slices = 2};
  const auto stage = StageModel::Load(model, config, &counters).value();
  MicroBatch batch;
  batch.open.push_back({.sequence = 1, .prompt = {5, 6, 7}});
  batch.slices.push_back({.sequence = 1, .count = 3, .new_blocks = {{0}}, .sample = true});
  ASSERT_TRUE(stage->Begin(batch).ok());
  MicroBatch guess = {.number = 1};
  guess.slices.push_back({.sequence = 1, .start = 3, .count = 1, .sample = true, .guess = true});
  EXPECT_THAT(stage->Begin(guess), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("a guess of sequence 1 has 0 tokens, expected 1")));
  guess.slices[0].tokens = {9};
  EXPECT_TRUE(stage->Begin(guess).ok());
}

}  // namespace
}  // namespace stagecoach::testing
