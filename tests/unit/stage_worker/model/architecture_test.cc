// Every architecture, layout and RoPE scaling against an independent forward pass in double.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/models/naive_forward.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/reference/agreement.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

std::vector<TokenId> Tokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((i * i * 7 + i * 31 + 5) % 320));
  return tokens;
}

std::shared_ptr<const ModelDescription> WriteModel(const TempDir& dir, const TinyModelOptions& options) {
  return OpenModel(WriteTinyModel(dir.File("tiny.gguf"), options)).value();
}

// Logits after every one of the tokens, over two stages.
std::vector<std::vector<float>> StageLogits(std::shared_ptr<const ModelDescription> model,
                                            const std::vector<TokenId>& tokens) {
  PipelineRig rig(std::move(model), {.stages = 2, .kv_type = KvType::kF32, .isa = TwinIsa()});
  return rig.LogitsOf(tokens, 32);
}

// bound: of the largest difference, as a part of the spread of the logits.
void ExpectMatchesNaive(const TinyModelOptions& options, double bound = 1e-5) {
  const TempDir dir;
  const auto model = WriteModel(dir, options);
  const std::vector<TokenId> tokens = Tokens(70);
  const auto naive = NaiveLogits(*model, tokens);
  const double spread = LogitSpread(naive);
  EXPECT_GT(spread, 1);  // else the comparison says little
  EXPECT_LE(Compare(naive, StageLogits(model, tokens)).worst / spread, bound);
}

TEST(Architecture, Qwen3HasNormsOfQAndKHeads) { ExpectMatchesNaive({}); }

TEST(Architecture, Qwen2HasBiasesOfQKV) { ExpectMatchesNaive({.architecture = "qwen2", .tied = false}); }

TEST(Architecture, LlamaRotatesAdjacentPairs) { ExpectMatchesNaive({.architecture = "llama", .tied = false}); }

TEST(Architecture, LayersMayDifferInTheWidthOfTheirFfn) {
  ExpectMatchesNaive({.ffn_of_layers = {96, 32, 160, 64}});
  ExpectMatchesNaive({.architecture = "llama", .layers = 2, .ffn_of_layers = {32, 224}, .biases = true});
}

TEST(Architecture, LlamaMayHaveBiasesEverywhere) {
  ExpectMatchesNaive({.architecture = "llama", .vector_type = TensorType::kF16, .biases = true});
}

TEST(Architecture, OneKvHeadMayServeAllQueryHeadsOrOnlyOne) {
  ExpectMatchesNaive({.heads = 6, .kv_heads = 1});
  ExpectMatchesNaive({.heads = 3, .kv_heads = 3});
}

TEST(Architecture, WidthsNeedNotBeMultiplesOfSixteen) {
  ExpectMatchesNaive({.hidden = 58, .heads = 6, .kv_heads = 3, .head_dim = 10, .ffn = 74, .vocab = 323});
  ExpectMatchesNaive({.hidden = 58,
                      .heads = 6,
                      .kv_heads = 3,
                      .head_dim = 10,
                      .ffn = 74,
                      .vocab = 323,
                      .type = TensorType::kBF16,
                      .fused_qkv = true});
}

TEST(Architecture, StoredTypesAreDecodedBeforeTheProducts) {
  ExpectMatchesNaive({.type = TensorType::kF16});
  ExpectMatchesNaive({.type = TensorType::kBF16, .vector_type = TensorType::kBF16});
  // Activations are rounded to int8, so this one is close only.
  ExpectMatchesNaive({.type = TensorType::kQ8_0}, 0.04);
}

TEST(Architecture, LinearScalingDividesPositions) {
  ExpectMatchesNaive({.architecture = "llama", .rope_scaling = "linear", .rope_factor = 4});
}

TEST(Architecture, YarnScalesSlowPairsAndAllMagnitudes) {
  ExpectMatchesNaive({.rope_freq_base = 1e6, .rope_scaling = "yarn", .rope_factor = 4, .rope_original_context = 128});
  ExpectMatchesNaive(
      {.architecture = "qwen2", .rope_scaling = "yarn", .rope_factor = 8, .rope_original_context = 4096});
}

TEST(Architecture, Llama3DividesFrequenciesByTheFilesFactors) {
  ExpectMatchesNaive({.architecture = "llama", .rope_freq_base = 5e5, .rope_factors = true});
}

TEST(Architecture, ScalingChangesTheAnswer) {
  const TempDir dir;
  const std::vector<TokenId> tokens = Tokens(40);
  const auto plain = StageLogits(WriteModel(dir, {.architecture = "llama"}), tokens);
  const TinyModelOptions variants[] = {
      {.architecture = "llama", .rope_scaling = "linear", .rope_factor = 4},
      {.architecture = "llama", .rope_scaling = "yarn", .rope_factor = 4, .rope_original_context = 128},
      {.architecture = "llama", .rope_factors = true}};
  for (const TinyModelOptions& variant : variants) EXPECT_NE(StageLogits(WriteModel(dir, variant), tokens), plain);
}

TEST(Architecture, AFusedQkvMatrixGivesTheSameBits) {
  const TempDir dir;
  const std::vector<TokenId> tokens = Tokens(40);
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0}) {
    TinyModelOptions options{.architecture = "qwen2", .type = type};
    const auto separate = StageLogits(WriteModel(dir, options), tokens);
    options.fused_qkv = true;
    EXPECT_EQ(StageLogits(WriteModel(dir, options), tokens), separate);
  }
}

TEST(Architecture, ShardsGiveTheSameBits) {
  const TempDir dir;
  const std::vector<TokenId> tokens = Tokens(20);
  const auto whole = StageLogits(WriteModel(dir, {}), tokens);
  EXPECT_EQ(StageLogits(WriteModel(dir, {.shards = 3}), tokens), whole);
}

}  // namespace
}  // namespace stagecoach::testing
