// A draft's stage, which samples ahead of the true tokens and is corrected: what it samples depends on the tokens that
// it was given last, and on nothing that was taken back.

#include <algorithm>
#include <memory>
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

constexpr int32_t kMostAhead = 4;  // rows behind the true ones

// One sequence on one stage. Its blocks are handed out in order; its states have a slot for each of the last rows.
class DraftRig {
 public:
  explicit DraftRig(const std::shared_ptr<const ModelDescription>& model) : model_(model) {
    StageConfig config;
    config.last_layer = model->hyper.layer_count();
    config.owns_embedding = config.owns_head = true;
    config.cuts_history = true;
    config.most_guesses = kMostAhead;
    config.block_tokens = 16;
    config.group_blocks.assign(static_cast<size_t>(model->hyper.block_groups()), 8);
    config.state_slots = model->hyper.recurrent() ? kMostAhead + 1 : 0;
    config.context = 128;
    config.max_rows = 64;
    config.max_slices = 4;
    config.isa = ParseInstructionSet(TwinIsa()).value();
    stage_ = StageModel::Load(model, config, &counters_).value();
    hidden_.resize(64 * static_cast<size_t>(model->hyper.hidden));
  }

  void Open(const OpenSequence& open) { batch_.open = {open}; }
  // The tokens at positions from `start` on; the token sampled behind them, if that is wanted.
  TokenId Run(int32_t start, const std::vector<TokenId>& tokens, bool sample = true) {
    SequenceSlice slice = {.sequence = 1, .start = start, .count = static_cast<int32_t>(tokens.size())};
    slice.tokens = tokens;
    slice.sample = sample;
    const int32_t end = start + slice.count;
    for (; blocks_ * 16 < end; ++blocks_) {
      slice.new_blocks.resize(static_cast<size_t>(model_->hyper.block_groups()));
      for (std::vector<BlockId>& blocks : slice.new_blocks) blocks.push_back(blocks_);
    }
    if (model_->hyper.recurrent()) {
      if (start > 0) slice.state_read = (start - 1) % (kMostAhead + 1);
      slice.state_write = (end - 1) % (kMostAhead + 1);
    }
    batch_.slices = {slice};
    const absl::Status taken = stage_->Begin(batch_);
    EXPECT_TRUE(taken.ok()) << taken;
    stage_->Forward(batch_, hidden_.data());
    StepResult result;
    stage_->Finish(batch_, hidden_.data(), &result);
    batch_ = {.number = batch_.number + 1};
    if (!sample) return kNoToken;
    EXPECT_EQ(result.sampled.at(0).position, end);
    return result.sampled.at(0).token;
  }
  MicroBatch& batch() { return batch_; }
  StageModel& stage() { return *stage_; }

 private:
  const std::shared_ptr<const ModelDescription> model_;
  StageCounters counters_;
  std::unique_ptr<StageModel> stage_;
  std::vector<float> hidden_;
  MicroBatch batch_;
  BlockId blocks_ = 0;
};

// What a run that was never ahead samples behind these tokens.
TokenId OwnToken(const std::shared_ptr<const ModelDescription>& model, OpenSequence open,
                 const std::vector<TokenId>& tokens) {
  DraftRig rig(model);
  open.output.assign(tokens.begin() + static_cast<int64_t>(open.prompt.size()), tokens.end());
  rig.Open(open);
  return rig.Run(0, tokens);
}

// Draws ahead, and is told other tokens now and then: one that replaces what was sampled, or several behind it.
void RunAgainstOwnTokens(const std::shared_ptr<const ModelDescription>& model, uint64_t seed, int* rewinds) {
  std::mt19937_64 random(seed);
  OpenSequence open = {.sequence = 1, .prompt = {}};
  for (int32_t i = 0; i < 14; ++i) open.prompt.push_back((37 * i + 5) % 300);
  open.sampling = {.temperature = 0.8f, .repeat_penalty = 1.3f, .frequency_penalty = 0.5f, .seed = seed};
  DraftRig rig(model);
  rig.Open(open);
  rig.Run(0, {open.prompt.begin(), open.prompt.begin() + 5}, false);
  std::vector<TokenId> tokens = open.prompt;  // the true ones, then those that were sampled
  tokens.push_back(rig.Run(5, {open.prompt.begin() + 5, open.prompt.end()}));
  auto truth = static_cast<int32_t>(open.prompt.size()), rows = truth;
  while (truth < 60) {
    int32_t start = rows;
    switch (random() % 4) {
      case 0:  // the next true token is another
        tokens.resize(static_cast<size_t>(truth));
        tokens.push_back(static_cast<TokenId>(random() % 300));
        start = std::min(rows, truth++);
        *rewinds += start < rows ? 1 : 0;
        break;
      case 1:  // and two more are known: it lags behind
        if (truth < rows) continue;
        tokens.resize(static_cast<size_t>(truth));
        for (int i = 0; i < 3; ++i) tokens.push_back(static_cast<TokenId>(random() % 300));
        truth = static_cast<int32_t>(tokens.size());
        break;
      default:  // it goes ahead with its own
        if (rows < truth + kMostAhead) break;
        ++truth;
        continue;
    }
    rows = static_cast<int32_t>(tokens.size());
    const TokenId sampled = rig.Run(start, {tokens.begin() + start, tokens.end()});
    ASSERT_EQ(sampled, OwnToken(model, open, tokens)) << "at position " << rows;
    tokens.push_back(sampled);
  }
}

class DraftRows : public ::testing::TestWithParam<std::string> {};

TEST_P(DraftRows, SampleWhatTheDraftAloneWouldWhateverWasTakenBack) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), TinyArchitecture(GetParam()))).value();
  int rewinds = 0;
  for (const uint64_t seed : {1, 2}) RunAgainstOwnTokens(model, seed, &rewinds);
  EXPECT_GT(rewinds, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftRows, ::testing::Values("qwen3", "gpt-oss", "qwen35"), ArchitectureTestName);

TEST(DraftRow, FollowsTheGrammarOfTheTokensThatItWasGivenLast) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  DraftRig rig(model);
  rig.batch().define_grammars = {{3, Lists(1)}};
  rig.Open({.sequence = 1, .prompt = {5, 6, 7}, .grammar = 3});
  const auto token = [](char letter) { return static_cast<TokenId>(letter - 33); };  // printable bytes come first
  rig.Run(0, {5, 6, 7});
  for (int32_t row = 3; row < 5; ++row) rig.Run(row, {token('[')});  // whatever was sampled
  const auto in_list = [&](TokenId sampled) { return sampled == token(',') || sampled == token(']'); };
  EXPECT_TRUE(in_list(rig.Run(5, {token('1')})));
  EXPECT_TRUE(in_list(rig.Run(4, {token('1')})));  // where the second list began
  EXPECT_EQ(rig.Run(5, {token(']')}), token(';')) << "the list within it is gone";
}

TEST(DraftRow, IsRefusedWhereItsTokensLeaveAGapOrEndBeforeWhatTheSequenceWasOpenedWith) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  DraftRig rig(model);
  const auto refused = [&](SequenceSlice slice, const std::string& why) {
    MicroBatch batch = rig.batch();
    batch.slices = {std::move(slice)};
    EXPECT_THAT(rig.stage().Begin(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  rig.Open({.sequence = 1, .prompt = {5, 6, 7}});
  refused({.sequence = 1, .count = 2, .tokens = {5, 6}, .new_blocks = {{0}}, .sample = true},
          "sequence 1 is sampled for position 2, expected 3");
  rig.Run(0, {5, 6, 7});
  rig.Run(3, {8, 9}, false);  // known tokens behind which nothing is sampled
  SequenceSlice twice = {.sequence = 1, .start = 5, .count = 1, .tokens = {4}};
  MicroBatch batch = rig.batch();
  batch.slices = {twice, twice};
  batch.slices[1].start = 6;
  EXPECT_THAT(rig.stage().Begin(batch),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sequence 1 has several slices")));
  refused({.sequence = 1, .start = 4, .count = 1, .tokens = {9}, .sample = true},
          "starts at position 4, expected 5");  // its row was no guess
}

}  // namespace
}  // namespace stagecoach::testing
