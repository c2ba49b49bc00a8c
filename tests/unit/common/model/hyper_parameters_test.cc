#include "common/model/hyper_parameters.h"

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/architectures.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/tiny_model.h"

namespace stagecoach {
namespace {

using ::stagecoach::testing::TempDir;
using ::stagecoach::testing::TinyModel;
using ::stagecoach::testing::TinyModelOptions;
using ::testing::HasSubstr;

absl::StatusOr<HyperParameters> Read(const GgufWriter& writer, std::string* path = nullptr) {
  const TempDir dir;
  EXPECT_TRUE(writer.Write(dir.File("m.gguf")).ok());
  const auto file = GgufFile::Open(dir.File("m.gguf"));
  EXPECT_TRUE(file.ok()) << file.status();
  if (path != nullptr) *path = (*file)->path();
  return ReadHyperParameters(**file);
}

HyperParameters ReadOrDie(const GgufWriter& writer) {
  const auto hyper = Read(writer);
  EXPECT_TRUE(hyper.ok()) << hyper.status();
  return hyper.ok() ? *hyper : HyperParameters{};
}

TEST(HyperParameters, OfTheDemoModel) {
  const auto file = GgufFile::Open(testing::DemoModelPath());
  ASSERT_TRUE(file.ok());
  const auto hyper = ReadHyperParameters(**file);
  ASSERT_TRUE(hyper.ok()) << hyper.status();
  EXPECT_EQ(hyper->architecture, "qwen3");
  EXPECT_EQ(hyper->name, "Scripture Demo 7M");
  EXPECT_EQ(hyper->layer_count(), 8);
  EXPECT_EQ(hyper->context, 1024);
  EXPECT_EQ(hyper->hidden, 256);
  EXPECT_EQ(hyper->layers[7].ffn.width, 512);
  EXPECT_EQ(hyper->layers[7].attention.heads, 8);
  EXPECT_EQ(hyper->layers[7].attention.kv_heads, 2);
  EXPECT_EQ(hyper->layers[7].attention.head_dim, 64);
  EXPECT_EQ(hyper->layers[7].attention.q_width(), 512);
  EXPECT_EQ(hyper->layers[7].attention.kv_width(), 128);
  EXPECT_EQ(hyper->vocab, 4096);
  EXPECT_EQ(hyper->rms_eps, 1e-6f);
  EXPECT_EQ(hyper->layers[7].norm_eps, 1e-6f);
  EXPECT_EQ(hyper->layers[7].attention.rope.freq_base, 1e6);
  EXPECT_EQ(hyper->layers[7].attention.rope.pairs, RopePairs::kHalves);
  EXPECT_EQ(hyper->layers[7].attention.rope.scaling, RopeScaling::kNone);
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
            "qwen3moe, smollm3");
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
  GgufWriter writer = TinyModel({.rope_scaling = "yarn", .rope_factor = 4, .rope_original_context = 128});
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

struct BadKey {
  std::string name;
  std::function<void(GgufWriter&)> spoil;
  std::vector<std::string> words;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

void PrintTo(const BadKey& bad, std::ostream* out) { *out << bad.name; }

template <typename T>
std::function<void(GgufWriter&)> Set(const std::string& key, const T& value) {
  return [key, value](GgufWriter& writer) { writer.Set(key, value); };
}
std::function<void(GgufWriter&)> Remove(const std::string& key) {
  return [key](GgufWriter& writer) { writer.Remove(key); };
}

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

std::vector<BadKey> RangeCases() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  return {
      {"NoArchitecture", Remove("general.architecture"), {"'general.architecture' is missing", "llama, minimax-m2"}},
      {"NoLayerCount", Remove("qwen3.block_count"), {"'qwen3.block_count' is missing", "1 to 1024"}},
      {"ZeroLayers", Set("qwen3.block_count", uint32_t{0}), {"'qwen3.block_count' is 0", "1 to 1024"}},
      {"TooManyLayers", Set("qwen3.block_count", uint32_t{1025}), {"'qwen3.block_count' is 1025", "1 to 1024"}},
      {"NegativeLayers", Set("qwen3.block_count", int32_t{-1}), {"'qwen3.block_count' is -1"}},
      {"LayersAsText",
       Set("qwen3.block_count", std::string("4")),
       {"'qwen3.block_count' has type string", "an integer"}},
      {"ZeroContext", Set("qwen3.context_length", uint32_t{0}), {"'qwen3.context_length' is 0"}},
      {"ZeroHidden", Set("qwen3.embedding_length", uint32_t{0}), {"'qwen3.embedding_length' is 0"}},
      {"ZeroFfn", Set("qwen3.feed_forward_length", uint32_t{0}), {"'qwen3.feed_forward_length' is 0"}},
      {"ZeroHeads", Set("qwen3.attention.head_count", uint32_t{0}), {"'qwen3.attention.head_count' is 0"}},
      {"ZeroKvHeads", Set("qwen3.attention.head_count_kv", uint32_t{0}), {"'qwen3.attention.head_count_kv' is 0"}},
      {"KvHeadsNotADivisor",
       Set("qwen3.attention.head_count_kv", uint32_t{3}),
       {"head_count_kv' is 3", "divisor", "4"}},
      {"OddHeadSize",
       Set("qwen3.attention.key_length", uint32_t{33}),
       {"key_length' is 33", "even number from 2 to 1024"}},
      {"HugeHeadSize", Set("qwen3.attention.key_length", uint32_t{2048}), {"key_length' is 2048", "1024"}},
      {"NoEpsilon", Remove("qwen3.attention.layer_norm_rms_epsilon"), {"layer_norm_rms_epsilon' is missing"}},
      {"ZeroEpsilon", Set("qwen3.attention.layer_norm_rms_epsilon", 0.0f), {"layer_norm_rms_epsilon' is 0", "above 0"}},
      {"NanEpsilon",
       Set("qwen3.attention.layer_norm_rms_epsilon", nan),
       {"layer_norm_rms_epsilon' holds nan", "finite"}},
      {"VanishingEpsilon", Set("qwen3.attention.layer_norm_rms_epsilon", 1e-60), {"is 1e-60", "1e-30 to 1"}},
      {"FreqBaseOne", Set("qwen3.rope.freq_base", 1.0f), {"'qwen3.rope.freq_base' is 1", "above 1"}},
      {"InfiniteFreqBase", Set("qwen3.rope.freq_base", infinity), {"'qwen3.rope.freq_base' holds inf", "finite"}},
      {"FactorBelowOne", Set("qwen3.rope.scaling.factor", 0.5f), {"rope.scaling.factor' is 0.5", "at least 1"}},
      {"NegativeFactor", Set("qwen3.rope.scaling.factor", -2.0f), {"rope.scaling.factor' is -2"}},
      {"WrongVocabularySize", Set("qwen3.vocab_size", uint32_t{99}), {"'qwen3.vocab_size' is 99", "320 rows"}},
      {"ArrayOfWrongLength",
       Set("qwen3.attention.head_count", std::vector<uint32_t>(3, 4)),
       {"array of 3", "expected 4"}},
      {"ArrayOfZeros", Set("qwen3.attention.head_count", std::vector<uint32_t>(4, 0)), {"head_count' is 0", "1 to"}},
      {"ZeroInAnArray",
       Set("qwen3.feed_forward_length", std::vector<uint32_t>{96, 0, 96, 96}),
       {"feed_forward_length' is 0 in layer 1", "1 to"}},
      {"ArrayOfText",
       Set("qwen3.attention.head_count", std::vector<std::string>(4, "4")),
       {"array of string", "integer"}},
  };
}

std::vector<BadKey> UnsupportedCases() {
  const std::string scaling = "qwen3.rope.scaling.type";
  return {
      {"Architecture",
       Set("general.architecture", std::string("gpt2")),
       {"is 'gpt2'", "llama, minimax-m2"},
       kUnimplemented},
      {"RecurrentState",
       Set("general.architecture", std::string("qwen3next")),
       {"is 'qwen3next'", "recurrent state"},
       kUnimplemented},
      {"RecurrentStateOfExperts",
       Set("general.architecture", std::string("qwen35moe")),
       {"is 'qwen35moe'", "recurrent state"},
       kUnimplemented},
      {"MixtureOfExperts",
       Set("qwen3.expert_count", uint32_t{128}),
       {"expert_count' is 128", "architecture qwen3 has no experts"},
       kUnimplemented},
      {"NotCausal",
       Set("qwen3.attention.causal", false),
       {"attention.causal' is false", "expected true"},
       kUnimplemented},
      {"SlidingWindow",
       Set("qwen3.attention.sliding_window", uint32_t{256}),
       {"sliding_window' is 256", "512", "architecture qwen3 has no windows"},
       kUnimplemented},
      {"AttentionScale",
       Set("qwen3.attention.scale", 0.25f),
       {"attention.scale' is 0.25", "expected 0"},
       kUnimplemented},
      {"Temperature",
       Set("qwen3.attention.temperature_scale", 0.1f),
       {"attention.temperature_scale' is 0.1", "queries grow with their position"},
       kUnimplemented},
      {"AnotherNameOfTheBase",
       Set("qwen3.rope.global.freq_base", 1e6f),
       {"rope.global.freq_base' is 1e+06", "another name than rope.freq_base"},
       kUnimplemented},
      {"Hadamard", Set("prism.hadamard.block", uint32_t{128}), {"'prism.hadamard.block'", "Hadamard"}, kUnimplemented},
      {"LongRope", Set(scaling, std::string("longrope")), {"is 'longrope'", "none, linear, yarn"}, kUnimplemented},
      {"OtherValueSize",
       Set("qwen3.attention.value_length", uint32_t{16}),
       {"value_length' is 16", "expected 32"},
       kUnimplemented},
      {"UnequalAttention",
       Set("qwen3.attention.head_count_kv", std::vector<uint32_t>{2, 2, 1, 2}),
       {"2 in layer 0 and 1 in layer 2", "the same in every layer"},
       kUnimplemented},
  };
}

class BadHyperParameters : public ::testing::TestWithParam<BadKey> {};

TEST_P(BadHyperParameters, AreRefusedWithFileKeyAndValues) {
  GgufWriter writer = TinyModel({});
  GetParam().spoil(writer);
  std::string path;
  const auto hyper = Read(writer, &path);
  ASSERT_FALSE(hyper.ok());
  EXPECT_EQ(hyper.status().code(), GetParam().code) << hyper.status();
  const std::string message(hyper.status().message());
  EXPECT_THAT(message, HasSubstr(absl::StrCat("'", path, "'")));
  for (const std::string& word : GetParam().words) EXPECT_THAT(message, HasSubstr(word));
}

std::string CaseName(const ::testing::TestParamInfo<BadKey>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Range, BadHyperParameters, ::testing::ValuesIn(RangeCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Unsupported, BadHyperParameters, ::testing::ValuesIn(UnsupportedCases()), CaseName);

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
  writer.Set("qwen3.rope.dimension_count", uint32_t{15});
  EXPECT_THAT(Read(writer).status().message(), HasSubstr("dimension_count' is 15, expected an even number"));
  writer.Set("qwen3.rope.dimension_count", uint32_t{64});
  EXPECT_THAT(Read(writer).status().message(), HasSubstr("dimension_count' is 64, expected 2 to 32"));
}

TEST(HyperParameters, ASlidingWindowAsWideAsTheContextChangesNothing) {
  GgufWriter writer = TinyModel({.context = 512});
  writer.Set("qwen3.attention.sliding_window", uint32_t{512});
  EXPECT_TRUE(Read(writer).ok());
}

TEST(HyperParameters, AFileWithAVocabularyOnlySaysSo) {
  SHARED_FILE_OR_SKIP(path, "data/tokenizers/llama-spm.gguf");
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(ReadHyperParameters(**file).status().message()), HasSubstr("holds a vocabulary only"));
}

}  // namespace
}  // namespace stagecoach
