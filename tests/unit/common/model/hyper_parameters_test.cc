#include "common/model/hyper_parameters.h"

#include "absl/strings/str_cat.h"
#include "common/model/architectures.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyModel;

absl::StatusOr<HyperParameters> Read(const GgufWriter& writer) {
  const TempDir dir;
  return ReadHyperParameters(*GgufFile::Open(testing::WriteModel(dir.File("m.gguf"), writer)).value());
}

HyperParameters ReadOrDie(const GgufWriter& writer) { return Read(writer).value(); }

TEST(HyperParameters, OfTheDemoModel) {
  const auto hyper = ReadHyperParameters(*GgufFile::Open(testing::DemoModelPath()).value()).value();
  EXPECT_EQ(hyper.architecture, "qwen3");
  EXPECT_EQ(hyper.name, "Scripture Demo 7M");
  EXPECT_EQ(hyper.layer_count(), 8);
  EXPECT_EQ(hyper.context, 1024);
  EXPECT_EQ(hyper.hidden, 256);
  EXPECT_EQ(hyper.layers[7].ffn.width, 512);
  const AttentionSpec& attention = hyper.layers[7].attention;
  EXPECT_THAT(std::vector<int64_t>({attention.heads, attention.kv_heads, attention.head_dim}), ElementsAre(8, 2, 64));
  EXPECT_EQ(attention.q_width(), 512);
  EXPECT_EQ(attention.kv_width(), 128);
  EXPECT_EQ(hyper.vocab, 4096);
  EXPECT_EQ(hyper.rms_eps, 1e-6f);
  EXPECT_EQ(hyper.layers[7].norm_eps, 1e-6f);
  EXPECT_EQ(attention.rope.freq_base, 1e6);
  EXPECT_EQ(attention.rope.pairs, RopePairs::kHalves);
  EXPECT_EQ(attention.rope.scaling, RopeScaling::kNone);
}

TEST(HyperParameters, ArchitecturesDifferInTheirLayers) {
  const HyperParameters qwen3 = ReadOrDie(TinyModel({.architecture = "qwen3"}));
  const HyperParameters qwen2 = ReadOrDie(TinyModel({.architecture = "qwen2"}));
  const HyperParameters llama = ReadOrDie(TinyModel({.architecture = "llama"}));
  for (size_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(qwen3.layers[layer].attention.qk_norm, QkNorm::kHeads);
    EXPECT_FALSE(qwen3.layers[layer].attention.qkv_bias);
    EXPECT_EQ(qwen2.layers[layer].attention.qk_norm, QkNorm::kNone);
    EXPECT_TRUE(qwen2.layers[layer].attention.qkv_bias);
    EXPECT_EQ(qwen2.layers[layer].attention.rope.pairs, RopePairs::kHalves);
    EXPECT_EQ(llama.layers[layer].attention.rope.pairs, RopePairs::kAdjacent);
    for (const HyperParameters* hyper : {&qwen3, &qwen2, &llama}) {
      EXPECT_EQ(hyper->layers[layer].attention.kind, AttentionKind::kFull);
      EXPECT_EQ(hyper->layers[layer].ffn, (FfnSpec{.kind = FfnKind::kDense, .width = 96}));
    }
  }
  EXPECT_FALSE(qwen3.layers[0].attention.rope.factors);
  EXPECT_TRUE(llama.layers[0].attention.rope.factors);
  EXPECT_EQ(SupportedArchitectures(),
            "deepseek2, gemma2, gemma3, glm4moe, gpt-oss, granite, llama, minimax-m2, olmo2, phi3, qwen2, qwen3, "
            "qwen35, qwen35moe, qwen3moe, qwen3next, smollm3");
}

TEST(HyperParameters, MayStandBelowThePrefixThatOxiBonsaiWrites) {
  GgufWriter writer = TinyModel({.architecture = "llm"});
  writer.Set("general.architecture", "qwen3");
  const HyperParameters found = ReadOrDie(writer), expected = ReadOrDie(TinyModel({.architecture = "qwen3"}));
  EXPECT_EQ(found.architecture, "qwen3");
  EXPECT_EQ(found.layers, expected.layers);
  EXPECT_EQ(found.hidden, expected.hidden);
  writer.Remove("llm.embedding_length");
  EXPECT_THAT(Read(writer).status().message(), HasSubstr("key 'llm.embedding_length' is missing"));
  writer.Remove("llm.block_count");
  EXPECT_THAT(Read(writer).status().message(), HasSubstr("key 'qwen3.block_count' is missing"));
}

TEST(HyperParameters, OptionalKeysHaveTheirDefaults) {
  GgufWriter writer = TinyModel({.architecture = "llama", .hidden = 64, .heads = 4, .kv_heads = 4, .head_dim = 16});
  for (const char* name : {"attention.head_count_kv", "attention.key_length", "attention.value_length",
                           "rope.dimension_count", "rope.freq_base", "vocab_size"}) {
    writer.Remove(absl::StrCat("llama.", name));
  }
  const HyperParameters hyper = ReadOrDie(writer);
  EXPECT_EQ(hyper.layers[3].attention.kv_heads, 4);
  EXPECT_EQ(hyper.layers[3].attention.head_dim, 16);
  EXPECT_EQ(hyper.layers[3].attention.rope.freq_base, 10000);
  EXPECT_EQ(hyper.layers[3].attention.rope.factor, 1);
  EXPECT_EQ(hyper.layers[3].attention.rope.original_context, 512);
  EXPECT_EQ(hyper.vocab, 320);
}

TEST(HyperParameters, IntegersOfAnyWidthAreAccepted) {
  GgufWriter writer = TinyModel({});
  writer.Set("qwen3.block_count", int64_t{4});
  writer.Set("qwen3.attention.head_count", uint8_t{4});
  EXPECT_EQ(ReadOrDie(writer).layer_count(), 4);
}

TEST(HyperParameters, MayHaveOneValueForEveryLayer) {
  GgufWriter writer = TinyModel({});
  writer.Set("qwen3.attention.head_count", std::vector<int32_t>(4, 4));
  writer.Set("qwen3.attention.head_count_kv", std::vector<uint32_t>(4, 2));
  writer.Set("qwen3.feed_forward_length", std::vector<uint32_t>{96, 96, 64, 32});
  const HyperParameters hyper = ReadOrDie(writer);
  EXPECT_EQ(hyper.layers[3].attention.heads, 4);
  EXPECT_EQ(hyper.layers[3].attention.kv_heads, 2);
  EXPECT_EQ(hyper.layers[1].ffn.width, 96);
  EXPECT_EQ(hyper.layers[2].ffn.width, 64);
  EXPECT_EQ(hyper.layers[3].ffn.width, 32);
}

TEST(Rope, LinearScalingUnderItsNewAndItsOldName) {
  const HyperParameters linear = ReadOrDie(TinyModel({.rope_scaling = "linear", .rope_factor = 4}));
  EXPECT_EQ(linear.layers[0].attention.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.layers[0].attention.rope.factor, 4);
  GgufWriter old = TinyModel({});
  old.Set("qwen3.rope.scale_linear", 2.0f);
  const HyperParameters scaled = ReadOrDie(old);
  EXPECT_EQ(scaled.layers[0].attention.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(scaled.layers[0].attention.rope.factor, 2);
}

TEST(Rope, AFactorOfZeroOrOneOrTypeNoneMeansNoScaling) {
  for (const auto& [type, factor] : {std::pair("linear", 0.0), std::pair("linear", 1.0), std::pair("none", 4.0)}) {
    const HyperParameters hyper = ReadOrDie(TinyModel({.rope_scaling = type, .rope_factor = factor}));
    EXPECT_EQ(hyper.layers[3].attention.rope.scaling, RopeScaling::kNone);
    EXPECT_EQ(hyper.layers[3].attention.rope.factor, 1);
  }
}

TEST(Rope, YarnReadsAllItsKeys) {
  GgufWriter writer = TinyModel({.rope_scaling = "yarn", .rope_factor = 4, .original_context = 128});
  const RopeParameters plain = ReadOrDie(writer).layers[0].attention.rope;
  EXPECT_EQ(plain.scaling, RopeScaling::kYarn);
  EXPECT_EQ(plain.factor, 4);
  EXPECT_EQ(plain.original_context, 128);
  EXPECT_EQ(plain.attn_factor, 1);
  EXPECT_EQ(plain.ext_factor, 1);
  EXPECT_EQ(plain.beta_fast, 32);
  EXPECT_EQ(plain.beta_slow, 1);
  writer.Set("qwen3.rope.scaling.attn_factor", 0.5f);
  writer.Set("qwen3.rope.scaling.yarn_attn_factor", 3.0f);  // repeats what the factor gives
  writer.Set("qwen3.rope.scaling.yarn_ext_factor", 0.25f);
  writer.Set("qwen3.rope.scaling.yarn_beta_fast", 16.0f);
  writer.Set("qwen3.rope.scaling.yarn_beta_slow", 2.0f);
  const RopeParameters set = ReadOrDie(writer).layers[0].attention.rope;
  EXPECT_EQ(set.attn_factor, 0.5);
  EXPECT_EQ(set.ext_factor, 0.25);
  EXPECT_EQ(set.beta_fast, 16);
  EXPECT_EQ(set.beta_slow, 2);
}

TEST(HyperParameters, ASlidingWindowIsThatOfEveryLayer) {
  GgufWriter writer = TinyModel({.architecture = "llama", .context = 512});
  writer.Set("llama.attention.sliding_window", uint32_t{100});
  const HyperParameters hyper = ReadOrDie(writer);
  for (const LayerSpec& layer : hyper.layers) {
    EXPECT_EQ(layer.attention.kind, AttentionKind::kWindowed);
    EXPECT_EQ(layer.attention.window, 100);
    EXPECT_EQ(layer.block_group, 0);
  }
  EXPECT_EQ(hyper.group_windows(), std::vector<int64_t>{100});
}

TEST(HyperParameters, APatternSaysWhichLayersAreWindowed) {
  GgufWriter writer = TinyModel({.architecture = "llama", .context = 512});
  writer.Set("llama.attention.sliding_window", uint32_t{100});
  writer.Set("llama.attention.sliding_window_pattern", uint32_t{3});
  const HyperParameters by_period = ReadOrDie(writer);
  writer.Set("llama.attention.sliding_window_pattern", std::vector<uint32_t>{1, 1, 0, 1});
  const HyperParameters by_layer = ReadOrDie(writer);
  for (size_t layer = 0; layer < 4; ++layer) {
    const LayerSpec& spec = by_period.layers[layer];
    EXPECT_EQ(spec.attention.kind, layer == 2 ? AttentionKind::kFull : AttentionKind::kWindowed);
    EXPECT_EQ(spec.block_group, layer == 2 ? 0 : 1);
    EXPECT_EQ(spec, by_layer.layers[layer]);
  }
  EXPECT_EQ(by_period.group_windows(), (std::vector<int64_t>{0, 100}));
}

TEST(HyperParameters, RopeMayTurnAPartOfEachHead) {
  GgufWriter writer = TinyModel({});
  writer.Set("qwen3.rope.dimension_count", uint32_t{16});
  EXPECT_EQ(ReadOrDie(writer).layers[1].attention.rope.dims, 16);
}

TEST(HyperParameters, ASlidingWindowAsWideAsTheContextChangesNothing) {
  GgufWriter writer = TinyModel({.context = 512});
  writer.Set("qwen3.attention.sliding_window", uint32_t{512});
  EXPECT_TRUE(Read(writer).ok());
}

TEST(HyperParameters, AFileWithAVocabularyOnlySaysSo) {
  SHARED_FILE_OR_SKIP(path, "data/tokenizers/llama-spm.gguf");
  const auto file = GgufFile::Open(path).value();
  EXPECT_THAT(ReadHyperParameters(*file).status().message(), HasSubstr("holds a vocabulary only"));
}

}  // namespace
}  // namespace stagecoach
