#include "stage_worker/model/stage_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

std::shared_ptr<const ModelDescription> Write(const TempDir& dir, const TinyModelOptions& options = {}) {
  return OpenModel(WriteTinyModel(dir.File("tiny.gguf"), options)).value();
}

StageConfig SmallConfig() {
  return {.last_layer = 4,
          .owns_embedding = true,
          .owns_head = true,
          .group_blocks = {8},
          .context = 64,
          .max_rows = 16,
          .max_slices = 2};
}

uint64_t TensorBytes(const std::vector<const GgufTensor*>& tensors) {
  uint64_t bytes = 0;
  for (const GgufTensor* tensor : tensors) bytes += tensor->bytes;
  return bytes;
}

TEST(StageLoading, ReadsExactlyTheBytesOfItsTensors) {
  const TempDir dir;
  const TinyModelOptions variants[] = {{},
                                       {.type = TensorType::kQ8_0, .tied = false},
                                       {.architecture = "qwen2", .fused_qkv = true},
                                       {.architecture = "llama", .biases = true, .rope_factors = true}};
  for (const TinyModelOptions& options : variants) {
    for (const int threads : {1, 3}) {
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>(0, 1), {1, 3}, {3, 4}, {0, 4}}) {
        const auto model = Write(dir, options);
        StageConfig config = SmallConfig();
        config.first_layer = first;
        config.last_layer = last;
        config.owns_embedding = first == 0;
        config.owns_head = last == 4;
        config.threads = threads;
        StageCounters counters;
        ASSERT_TRUE(StageModel::Load(model, config, &counters).ok());
        const uint64_t expected =
            TensorBytes(model->StageTensors(first, last, config.owns_embedding, config.owns_head));
        EXPECT_GT(expected, 0u);
        EXPECT_EQ(model->file->bytes_read(), expected);
        EXPECT_EQ(counters.bytes_to_load.load(), expected);
        EXPECT_EQ(counters.bytes_loaded.load(), expected);
      }
    }
  }
}

TEST(StageLoading, HoldsATiedMatrixOnceAndLittleMoreThanTheFile) {
  const auto model = OpenModel(DemoModelPath()).value();
  StageConfig config = SmallConfig();
  config.last_layer = 8;
  StageCounters counters;
  const auto stage = StageModel::Load(model, config, &counters).value();
  const uint64_t file_bytes = TensorBytes(model->StageTensors(0, 8, true, true));
  EXPECT_GE(stage->weight_bytes(), file_bytes);
  EXPECT_LE(stage->weight_bytes(), file_bytes + file_bytes / 100);
  EXPECT_EQ(stage->kv_bytes(), 8u * 8 * 32 * 2 * 2 * 64 * 2);
  EXPECT_GT(stage->scratch_bytes(), 0u);
}

TEST(StageLoading, SaysSoWhenTheFileIsCut) {
  const TempDir dir;
  const auto model = Write(dir);
  std::filesystem::resize_file(dir.File("tiny.gguf"), std::filesystem::file_size(dir.File("tiny.gguf")) - 4096);
  StageCounters counters;
  EXPECT_EQ(StageModel::Load(model, SmallConfig(), &counters).status().code(), absl::StatusCode::kDataLoss);
}

TEST(StageLoading, RefusesAConfigurationOutOfRange) {
  const TempDir dir;
  const auto model = Write(dir);
  struct Case {
    void (*spoil)(StageConfig*);
    const char* message;
  };
  const Case cases[] = {
      {[](StageConfig* c) { c->last_layer = 5; }, "layers [0, 5), expected at least one layer within [0, 4)"},
      {[](StageConfig* c) { c->first_layer = 4; }, "layers [4, 4)"},
      {[](StageConfig* c) { c->max_rows = 0; }, "`max_rows` is 0, expected 1 to"},
      {[](StageConfig* c) { c->threads = 0; }, "`threads` is 0"},
      {[](StageConfig* c) { c->context = 0; }, "`context` is 0"},
      {[](StageConfig* c) { c->group_blocks = {0}; }, "0 blocks"},
      {[](StageConfig* c) {
         c->group_blocks = {8, 8};
       },
       "KV pools of 2 block groups, the model has 1"},
      {[](StageConfig* c) { c->block_tokens = 20; }, "blocks of 20 tokens"},
  };
  for (const Case& c : cases) {
    StageConfig config = SmallConfig();
    c.spoil(&config);
    StageCounters counters;
    EXPECT_THAT(StageModel::Load(model, config, &counters).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)))
        << c.message;
  }
}

TEST(StageLoading, RefusesRopeDivisorsThatAreNotPositive) {
  const TempDir dir;
  GgufWriter writer = TinyModel({.architecture = "llama", .rope_factors = true});
  std::vector<float> factors(16, 1.0f);
  factors[3] = 0;
  writer.SetTensor("rope_freqs.weight", {16}, TensorType::kF32, factors);
  const auto model = OpenModel(WriteModel(dir.File("bad.gguf"), writer)).value();
  StageCounters counters;
  const absl::Status status = StageModel::Load(model, SmallConfig(), &counters).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("'rope_freqs.weight' element 3 is 0, expected 1e-6 to 1e9"));
}

// One stage with sequence 1 (three tokens, not yet fed) opened.
class StageBeginTest : public ::testing::Test {
 protected:
  StageBeginTest() : model_(Write(dir_)) {
    stage_ = StageModel::Load(model_, SmallConfig(), &counters_).value();
    MicroBatch batch;
    batch.open.push_back({.sequence = 1, .prompt = {5, 6, 7}});
    EXPECT_TRUE(stage_->Begin(batch).ok());
  }

  static MicroBatch Rows() {
    MicroBatch batch;
    batch.slices.push_back(
        {.sequence = 1, .start = 0, .count = 3, .tokens = {5, 6, 7}, .new_blocks = {{0}}, .sample = true});
    return batch;
  }

  // Refused with this message; afterwards the batch that should have come is still taken.
  void ExpectRefused(const MicroBatch& batch, const std::string& message) {
    EXPECT_THAT(stage_->Begin(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << message;
  }
  void TearDown() override { EXPECT_TRUE(stage_->Begin(Rows()).ok()); }

  TempDir dir_;
  StageCounters counters_;
  std::shared_ptr<const ModelDescription> model_;
  std::unique_ptr<StageModel> stage_;
};

TEST_F(StageBeginTest, RefusesTokensThatAreMissingOrOutsideTheVocabulary) {
  MicroBatch batch = Rows();
  batch.slices[0].tokens = {5, 6};
  ExpectRefused(batch, "has 2 tokens, expected 3");
  batch.slices[0].tokens = {5, 6, 320};
  ExpectRefused(batch, "tokens[2] is 320, expected 0 to 319");
  batch.slices[0].tokens = {5, -1, 7};
  ExpectRefused(batch, "tokens[1] is -1");
}

TEST_F(StageBeginTest, RefusesTargetsThatDoNotFit) {
  MicroBatch batch = Rows();
  batch.slices[0].targets = {1};
  ExpectRefused(batch, "has 1 targets, expected none or 3");
  batch.slices[0].targets = {1, kNoToken, 320};
  ExpectRefused(batch, "has target 320");
}

TEST_F(StageBeginTest, RefusesToSampleAnywhereButAfterTheLastToken) {
  MicroBatch batch = Rows();
  batch.slices[0].count = 2;
  batch.slices[0].tokens = {5, 6};
  ExpectRefused(batch, "sampled for position 2, expected 3");
}

TEST_F(StageBeginTest, RefusesWhatTheSequenceTableRefuses) {
  MicroBatch batch = Rows();
  batch.slices[0].start = 1;
  ExpectRefused(batch, "starts at position 1, expected 0");
  batch = Rows();
  batch.slices[0].new_blocks = {{8}};
  ExpectRefused(batch, "block 8");
}

TEST_F(StageBeginTest, RefusesSequencesThatCannotBeSampled) {
  MicroBatch batch;
  batch.open.push_back({.sequence = 2, .prompt = {}});
  ExpectRefused(batch, "sequence 2: prompt is empty");
  batch.open[0].prompt = {320};
  ExpectRefused(batch, "sequence 2: prompt[0] is 320");
  batch.open[0].prompt = {1};
  batch.open[0].sampling.temperature = -1;
  ExpectRefused(batch, "temperature is -1");
}

TEST_F(StageBeginTest, RefusesMoreThanWasAgreed) {
  MicroBatch batch = Rows();
  batch.slices[0].count = 17;
  ExpectRefused(batch, "1 slices and 17 rows, agreed are at most 2 and 16");
  batch = Rows();
  batch.slices.resize(3, batch.slices[0]);
  ExpectRefused(batch, "3 slices");
}

TEST(StageFinish, GivesLogProbabilitiesOfTargetsAndOfNothingElse) {
  const TempDir dir;
  PipelineRig rig(Write(dir), {.stages = 2});
  const std::vector<TokenId> tokens = {5, 6, 7, 8};
  const SequenceId sequence = rig.Open(tokens, {.prompt_logprobs = 2});
  rig.Feed(sequence, tokens, false, {6, kNoToken, 8, 300});
  const StepResult result = rig.Step();
  EXPECT_TRUE(result.sampled.empty());
  ASSERT_EQ(result.targets.size(), 1u);
  EXPECT_EQ(result.targets[0].sequence, sequence);
  EXPECT_EQ(result.targets[0].start, 0);
  const std::vector<float>& logprobs = result.targets[0].logprobs;
  ASSERT_EQ(logprobs.size(), 4u);
  EXPECT_EQ(logprobs[1], 0);
  const TokenId targets[] = {6, kNoToken, 8, 300};
  for (const int row : {0, 2, 3}) {
    const std::vector<float> logits = rig.Logits(row);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(logprobs[static_cast<size_t>(row)], logits[static_cast<size_t>(targets[row])] - std::log(sum), 1e-5);
    const TokenLogprob* top = &result.targets[0].top.at(static_cast<size_t>(2 * row));
    EXPECT_EQ(top[0].token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    EXPECT_NEAR(top[0].logprob, logits[static_cast<size_t>(top[0].token)] - std::log(sum), 1e-5);
    EXPECT_GE(top[0].logprob, top[1].logprob);
  }
  EXPECT_EQ(result.targets[0].top.size(), 8u);
  for (const int place : {2, 3}) EXPECT_EQ(result.targets[0].top[static_cast<size_t>(place)], TokenLogprob());
}

// Who compares the log-probability of a target with the largest one beside it compares bits.
TEST(StageFinish, ATargetAmongTheMostProbableHasTheSameLogProbabilityThere) {
  const TempDir dir;
  PipelineRig rig(Write(dir), {});
  const std::vector<TokenId> tokens = {5, 6, 7, 8};
  rig.Feed(rig.Open(tokens, {.prompt_logprobs = 1}), tokens, false, {0, 0, 0, 0});
  const std::vector<TokenLogprob> best = rig.Step().targets.at(0).top;
  std::vector<TokenId> targets;
  for (const TokenLogprob& top : best) targets.push_back(top.token);
  rig.Feed(rig.Open(tokens, {.prompt_logprobs = kMaxPromptLogprobs}), tokens, false, targets);
  const TargetLogprobs scores = rig.Step().targets.at(0);
  for (size_t row = 0; row < tokens.size(); ++row) {
    EXPECT_EQ(scores.logprobs[row], best[row].logprob);
    EXPECT_EQ(scores.top.at(row * kMaxPromptLogprobs), best[row]);
  }
}

TEST(StageFinish, ScoresAndSamplesRowsOfOneStep) {
  const TempDir dir;
  PipelineRig rig(Write(dir), {.threads = 3});
  std::vector<TokenId> tokens, targets;
  for (int i = 0; i < 29; ++i) tokens.push_back(i), targets.push_back(i + 1);
  const SamplingParams with_logprobs{.logprobs = 2};
  const SequenceId a = rig.Open(tokens, with_logprobs), b = rig.Open({9, 8});
  rig.Feed(a, tokens, true, targets);
  rig.Feed(b, {9, 8}, true);
  const StepResult result = rig.Step();
  ASSERT_EQ(result.sampled.size(), 2u);
  EXPECT_EQ(result.sampled[0].sequence, a);
  EXPECT_EQ(result.sampled[0].position, 29);
  ASSERT_EQ(result.sampled[0].top.size(), 2u);
  EXPECT_EQ(result.sampled[0].top[0].token, result.sampled[0].token);  // greedy
  EXPECT_EQ(result.sampled[0].top[0].logprob, result.sampled[0].logprob);
  EXPECT_LT(result.sampled[0].logprob, 0);
  EXPECT_EQ(result.sampled[1].sequence, b);
  EXPECT_EQ(result.sampled[1].position, 2);
  EXPECT_EQ(result.sampled[1].logprob, 0);  // none asked for
  EXPECT_TRUE(result.sampled[1].top.empty());
  ASSERT_EQ(result.targets.size(), 1u);
  for (const float logprob : result.targets[0].logprobs) EXPECT_LT(logprob, 0);
  EXPECT_EQ(rig.counters(0).layers_done.load(), 4u);
}

// Keys beyond what F16 can hold: the cache stores infinities.
std::shared_ptr<const ModelDescription> WithLargeKeys(const TempDir& dir) {
  GgufWriter writer = TinyModel({.architecture = "qwen2"});
  writer.SetTensor("blk.2.attn_k.bias", {64}, TensorType::kF32, std::vector<float>(64, 1e5f));
  return OpenModel(WriteModel(dir.File("large-keys.gguf"), writer)).value();
}

TEST(StageFinish, SaysThatLogitsAreNotFinite) {
  const TempDir dir;
  const auto model = WithLargeKeys(dir);
  const std::vector<TokenId> tokens = {5, 6, 7, 8}, targets = {kNoToken, 7, 8, kNoToken};
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    for (const float temperature : {0.0f, 0.7f}) {
      PipelineRig rig(model, {.stages = 2, .threads = 3, .kv_type = type});
      const SamplingParams sampling{.temperature = temperature, .logprobs = 2, .prompt_logprobs = 3};
      rig.Feed(rig.Open(tokens, sampling), tokens, true, targets);
      const StepResult result = rig.Step();
      EXPECT_EQ(result.sampled.at(0).invalid_logits, type == KvType::kF16) << KvTypeName(type);
      EXPECT_EQ(result.targets.at(0).invalid_logits, type == KvType::kF16) << KvTypeName(type);
      EXPECT_TRUE(std::isfinite(result.sampled[0].logprob));
      for (const float logprob : result.targets[0].logprobs) EXPECT_TRUE(std::isfinite(logprob));
      ASSERT_EQ(result.targets[0].top.size(), 12u);
      EXPECT_EQ(result.targets[0].top[3].token == kNoToken, type == KvType::kF16);
      for (const TokenLogprob& top : result.targets[0].top) EXPECT_TRUE(std::isfinite(top.logprob));
    }
  }
}

// The head works in tiles of 32 rows.
TEST(StageFinish, SamplesMoreRowsThanATileAsIfEachWereAlone) {
  constexpr int kSequences = 41;
  const TempDir dir;
  const auto model = Write(dir);
  const auto prompt = [](int i) { return std::vector<TokenId>{i, 3 * i + 1}; };
  const auto sampling = [](int i) {
    return SamplingParams{.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = static_cast<uint64_t>(i), .logprobs = 1};
  };
  PipelineRig alone(model, {});
  std::vector<SampledToken> expected;
  for (int i = 0; i < kSequences; ++i) {
    alone.Feed(alone.Open(prompt(i), sampling(i)), prompt(i), true);
    const StepResult result = alone.Step();
    ASSERT_EQ(result.sampled.size(), 1u);
    expected.push_back(result.sampled[0]);
  }
  for (const int threads : {1, 3}) {
    PipelineRig rig(model, {.threads = threads});
    for (int i = 0; i < kSequences; ++i) rig.Feed(rig.Open(prompt(i), sampling(i)), prompt(i), true);
    EXPECT_EQ(rig.Step().sampled, expected) << threads << " threads";
  }
}

TEST(StageFinish, ScoresMoreRowsThanATileAsInSmallChunks) {
  const TempDir dir;
  const auto model = Write(dir);
  std::vector<TokenId> tokens, targets;
  for (int i = 0; i < PipelineRig::kMaxRows; ++i) tokens.push_back(i), targets.push_back((7 * i + 1) % 320);
  const SamplingParams with_top{.prompt_logprobs = 5};
  PipelineRig chunked(model, {});
  const SequenceId sequence = chunked.Open(tokens, with_top);
  std::vector<float> expected;
  std::vector<TokenLogprob> expected_top;
  for (auto at = tokens.begin(), target = targets.begin(); at < tokens.end(); at += 12, target += 12) {
    chunked.Feed(sequence, {at, at + 12}, false, {target, target + 12});
    const StepResult result = chunked.Step();
    ASSERT_EQ(result.targets.size(), 1u);
    expected.insert(expected.end(), result.targets[0].logprobs.begin(), result.targets[0].logprobs.end());
    expected_top.insert(expected_top.end(), result.targets[0].top.begin(), result.targets[0].top.end());
  }
  for (const int threads : {1, 3}) {
    PipelineRig rig(model, {.threads = threads});
    rig.Feed(rig.Open(tokens, with_top), tokens, false, targets);
    const StepResult result = rig.Step();
    ASSERT_EQ(result.targets.size(), 1u);
    EXPECT_EQ(result.targets[0].logprobs, expected) << threads << " threads";
    EXPECT_EQ(result.targets[0].top, expected_top) << threads << " threads";
  }
}

// A sequence comes back under its id after a preemption, with more output, and another one may get the id of one that
// has ended.
TEST(StageFinish, AReopenedSequenceHasTheHistoryItIsOpenedWithAndNothingOfTheOldOne) {
  const TempDir dir;
  PipelineRig rig(Write(dir), {});
  const SamplingParams penalised{.repeat_penalty = 3, .presence_penalty = 5, .repeat_last_n = -1, .logprobs = 0};
  const std::vector<TokenId> prompt = {5, 6, 7, 8};
  const SequenceId fresh = rig.Open(prompt, penalised);
  rig.Feed(fresh, prompt, true);
  const TokenId first = rig.Step().sampled[0].token;
  rig.Feed(fresh, {first}, true);
  const TokenId second = rig.Step().sampled[0].token;
  ASSERT_NE(first, second) << "the penalty makes the history visible";
  for (const bool in_one_batch : {true, false}) {
    // The same id as that of the sequence which already has two tokens of output.
    rig.Close(fresh);
    if (!in_one_batch) rig.Step();
    rig.Reopen(fresh, prompt, penalised);
    rig.Feed(fresh, prompt, true);
    const StepResult result = rig.Step();
    ASSERT_EQ(result.sampled.size(), 1u);
    EXPECT_EQ(result.sampled[0].token, first);
    EXPECT_EQ(result.sampled[0].position, 4);
    rig.Feed(fresh, {first}, true);
    EXPECT_EQ(rig.Step().sampled[0].token, second);
  }
  rig.Close(fresh);
  rig.Reopen(fresh, prompt, penalised, {first});
  rig.Feed(fresh, {5, 6, 7, 8, first}, true);
  EXPECT_EQ(rig.Step().sampled[0].token, second);
}

TEST(StageFinish, SamplesSomethingFromWeightsThatAreNotNumbers) {
  const TempDir dir;
  GgufWriter writer = TinyModel({});
  writer.SetTensor("output_norm.weight", {64}, TensorType::kF32,
                   std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()));
  PipelineRig rig(OpenModel(WriteModel(dir.File("nan.gguf"), writer)).value(), {.allow_damaged = true});
  for (const float temperature : {0.0f, 1.0f}) {
    const SequenceId sequence = rig.Open({1, 2}, {.temperature = temperature, .logprobs = 1});
    rig.Feed(sequence, {1, 2}, true);
    const StepResult result = rig.Step();
    EXPECT_EQ(result.sampled[0].token, 0);
    EXPECT_TRUE(std::isfinite(result.sampled[0].logprob));
    rig.Close(sequence);
  }
}

}  // namespace
}  // namespace stagecoach::testing
