#include "common/gguf/dummy_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/counter_rng.h"
#include "common/gguf/model_shapes.h"
#include "common/quant/supported_types.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using ::testing::Gt;
using ::testing::Lt;

std::unique_ptr<GgufFile> OpenDummy(const std::string& path) { return GgufFile::Open(path).value(); }

std::vector<uint8_t> ReadOrDie(const GgufFile& file, const GgufTensor& tensor, uint64_t offset, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  EXPECT_TRUE(file.Read(tensor, offset, absl::MakeSpan(out)).ok());
  return out;
}

TensorType TypeOf(const GgufFile& file, const std::string& name) {
  return static_cast<TensorType>(file.FindTensor(name)->type_id);
}

TEST(DummyModel, HasTheHeaderOfAFileOfItsShape) {
  const auto file = OpenDummy("dummy://qwen3-0.6b/q8_0");
  EXPECT_EQ(file->path(), "dummy://qwen3-0.6b/q8_0");
  EXPECT_THAT(file->shard_paths(), ElementsAre("dummy://qwen3-0.6b/q8_0"));
  EXPECT_EQ(*file->metadata().GetString("general.architecture"), "qwen3");
  EXPECT_EQ(*file->metadata().GetInt("qwen3.vocab_size"), 151936);
  EXPECT_EQ(*file->metadata().GetInt("general.file_type"), 7);
  EXPECT_EQ(file->metadata().path(), file->path());
  EXPECT_EQ(file->tensors().size(), 28u * 11 + 2);
  uint64_t elements = 0;
  for (const GgufTensor& tensor : file->tensors()) elements += static_cast<uint64_t>(tensor.cols() * tensor.rows());
  EXPECT_EQ(elements, 596049920u);
  const GgufTensor* down = file->FindTensor("blk.27.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_THAT(down->dims, ElementsAre(3072, 1024));
  EXPECT_EQ(down->bytes, 3072u / 32 * 34 * 1024);
  EXPECT_EQ(TypeOf(*file, "blk.0.attn_q_norm.weight"), TensorType::kF32);
}

TEST(DummyModel, OpensInEveryTypeWithValuesOfTheSizeThatKeepsActivationsSane) {
  for (TensorType type : SupportedTypes()) {
    const std::string path = DummyModelPath("tiny", GetTensorType(type).name);
    SCOPED_TRACE(path);
    const auto file = OpenDummy(path);
    const GgufTensor* tensor = file->FindTensor("blk.1.ffn_down.weight");
    EXPECT_EQ(tensor->type_id, static_cast<uint32_t>(type));
    const std::vector<uint8_t> bytes = ReadOrDie(*file, *tensor, 0, tensor->bytes);
    std::vector<float> values(static_cast<size_t>(tensor->cols() * tensor->rows()));
    DequantizeRow(type, bytes.data(), static_cast<int64_t>(values.size()), values.data());
    double sum = 0;
    for (float value : values) sum += double{value} * value;
    const double rms = std::sqrt(sum / static_cast<double>(values.size()));
    EXPECT_THAT(rms * std::sqrt(static_cast<double>(tensor->cols())), AllOf(Gt(0.5), Lt(2)));
  }
}

TEST(DummyModel, AnyPartReadsAsInTheWhole) {
  const auto file = OpenDummy("dummy://tiny/q6_k");
  const GgufTensor& tensor = *file->FindTensor("blk.2.ffn_gate.weight");
  const std::vector<uint8_t> whole = ReadOrDie(*file, tensor, 0, tensor.bytes);
  for (const auto& [offset, bytes] : {std::pair<size_t, size_t>{0, 1},
                                      {1, 209},
                                      {209, 3},
                                      {210, 210},
                                      {777, 5000},
                                      {tensor.bytes - 13, 13},
                                      {tensor.bytes, 0}}) {
    const std::vector<uint8_t> part = ReadOrDie(*file, tensor, offset, bytes);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(offset))) << offset;
  }
}

TEST(DummyModel, IsTheSameWheneverAndByWhomeverItIsOpened) {
  const auto a = OpenDummy("dummy://tiny/q4_0");
  const auto b = OpenDummy("dummy://Tiny/Q4_0");
  EXPECT_EQ(a->fingerprints(), b->fingerprints());
  EXPECT_NE(a->fingerprints(), OpenDummy("dummy://tiny/q4_1")->fingerprints());
  const GgufTensor& tensor = *a->FindTensor("token_embd.weight");
  const std::vector<uint8_t> expected = ReadOrDie(*a, tensor, 0, tensor.bytes);
  std::vector<std::vector<uint8_t>> found(4);
  std::vector<std::thread> readers;
  for (std::vector<uint8_t>& bytes : found) {
    readers.emplace_back([&] { bytes = ReadOrDie(*b, *b->FindTensor("token_embd.weight"), 0, tensor.bytes); });
  }
  for (std::thread& reader : readers) reader.join();
  for (const std::vector<uint8_t>& bytes : found) EXPECT_EQ(bytes, expected);
  EXPECT_EQ(b->bytes_read(), 4 * tensor.bytes);
}

TEST(DummyModel, RowsAndTensorsDiffer) {
  const auto file = OpenDummy("dummy://tiny/q8_0");
  const GgufTensor& up = *file->FindTensor("blk.0.ffn_up.weight");
  const size_t row_bytes = up.bytes / static_cast<uint64_t>(up.rows());
  std::set<std::string> rows;
  for (int64_t row = 0; row < up.rows(); ++row) {
    const std::vector<uint8_t> bytes = ReadOrDie(*file, up, row * row_bytes, row_bytes);
    rows.emplace(bytes.begin(), bytes.end());
  }
  EXPECT_GT(rows.size(), static_cast<size_t>(up.rows()) * 9 / 10);
  EXPECT_NE(ReadOrDie(*file, up, 0, up.bytes), ReadOrDie(*file, *file->FindTensor("blk.1.ffn_up.weight"), 0, up.bytes));
}

std::vector<float> FloatsOf(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  EXPECT_EQ(tensor.type_id, static_cast<uint32_t>(TensorType::kF32)) << name;
  const std::vector<uint8_t> bytes = ReadOrDie(file, tensor, 0, tensor.bytes);
  std::vector<float> values(static_cast<size_t>(tensor.cols() * tensor.rows()));
  DequantizeRow(TensorType::kF32, bytes.data(), static_cast<int64_t>(values.size()), values.data());
  EXPECT_EQ(ReadOrDie(file, tensor, 2, 7)[5], bytes[7]) << name;
  return values;
}

TEST(DummyModel, NormsAreOneAndBiasesAndSinksRandomAndSmall) {
  const auto file = OpenDummy("dummy://gpt-oss-20b:layers=4/mxfp4");
  EXPECT_THAT(FloatsOf(*file, "output_norm.weight"), ::testing::Each(1.0f));
  EXPECT_THAT(FloatsOf(*file, "blk.3.post_attention_norm.weight"), ::testing::Each(1.0f));
  const auto glm = OpenDummy("dummy://glm-4.5-air:layers=2/q8_0");
  const struct {
    const GgufFile& file;
    const char* name;
    double most;
  } cases[] = {{*file, "blk.3.attn_k.bias", 0.1},
               {*file, "blk.3.attn_sinks.weight", 1},
               {*file, "blk.3.ffn_gate_inp.bias", 0.1},
               {*file, "blk.3.ffn_up_exps.bias", 0.1},
               {*glm, "blk.1.exp_probs_b.bias", 0.01}};
  for (const auto& [of, name, most] : cases) {
    const std::vector<float> values = FloatsOf(of, name);
    double sum = 0, squares = 0;
    for (const float value : values) {
      EXPECT_LE(std::fabs(value), most) << name;
      sum += value;
      squares += double{value} * value;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_LT(std::fabs(sum / count), 0.3 * most) << name;
    EXPECT_GT(std::sqrt(squares / count), 0.4 * most) << name;  // of uniform numbers 0.58
  }
}

TEST(DummyModel, ARouterChoosesEveryExpertAboutAsOften) {
  const auto file = OpenDummy("dummy://qwen3-30b-a3b:layers=2/q4_k_m");
  const std::vector<float> router = FloatsOf(*file, "blk.1.ffn_gate_inp.weight");
  constexpr size_t kHidden = 2048, kExperts = 128, kUsed = 8, kRows = 256;
  std::vector<int> chosen(kExperts);
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> input(kHidden);
    for (size_t i = 0; i < kHidden; ++i) input[i] = static_cast<float>(2 * UniformAt(7, row * kHidden + i) - 1);
    std::vector<std::pair<float, size_t>> logits;
    for (size_t expert = 0; expert < kExperts; ++expert) {
      const float* weights = router.data() + expert * kHidden;
      logits.emplace_back(std::inner_product(input.begin(), input.end(), weights, 0.0f), expert);
    }
    std::partial_sort(logits.begin(), logits.begin() + kUsed, logits.end(), std::greater<>());
    for (size_t i = 0; i < kUsed; ++i) ++chosen[logits[i].second];
  }
  // 16 on average.
  EXPECT_GE(*std::min_element(chosen.begin(), chosen.end()), 3);
  EXPECT_LE(*std::max_element(chosen.begin(), chosen.end()), 45);
}

TEST(DummyModel, RowsThatDoNotFillTheBlocksOfTheTypeAreQ8) {
  const auto file = OpenDummy("dummy://qwen2.5-0.5b/q4_k");
  EXPECT_EQ(TypeOf(*file, "blk.0.attn_q.weight"), TensorType::kQ8_0);    // rows of 896
  EXPECT_EQ(TypeOf(*file, "blk.0.ffn_down.weight"), TensorType::kQ4_K);  // rows of 4864
}

TEST(DummyModel, TheMixHasSixBitsInTheHeadAndInHalfOfTheLayersValuesAndDownProjections) {
  const auto tied = OpenDummy("dummy://qwen3-0.6b/q4_k_m");
  EXPECT_EQ(*tied->metadata().GetInt("general.file_type"), 15);
  EXPECT_EQ(TypeOf(*tied, "token_embd.weight"), TensorType::kQ6_K);
  std::map<TensorType, int> values;
  for (int layer = 0; layer < 28; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    ++values[TypeOf(*tied, prefix + "attn_v.weight")];
    EXPECT_EQ(TypeOf(*tied, prefix + "attn_v.weight"), TypeOf(*tied, prefix + "ffn_down.weight"));
    EXPECT_EQ(TypeOf(*tied, prefix + "ffn_up.weight"), TensorType::kQ4_K);
  }
  EXPECT_THAT(values, ElementsAre(std::pair(TensorType::kQ4_K, 14), std::pair(TensorType::kQ6_K, 14)));
  const auto untied = OpenDummy("dummy://qwen3-8b/q4_k_m");
  EXPECT_EQ(TypeOf(*untied, "token_embd.weight"), TensorType::kQ4_K);
  EXPECT_EQ(TypeOf(*untied, "output.weight"), TensorType::kQ6_K);
}

TEST(DummyModel, UnknownNamesAreAnsweredWithTheLists) {
  EXPECT_THAT(GgufFile::Open("dummy://qwen3-7b/q8_0").status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("'qwen3-7b'"), HasSubstr("qwen3-0.6b, "), HasSubstr("types are f32"))));
  EXPECT_THAT(GgufFile::Open("dummy://qwen3-8b/q9").status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("'q9'"), HasSubstr("q8_0, "), HasSubstr("q4_k_m"))));
  for (const char* path : {"dummy://", "dummy://qwen3-8b", "dummy://qwen3-8b/q8_0/x", "dummy:///"}) {
    EXPECT_EQ(GgufFile::Open(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST(DummyModel, AShapeHasAsManyLayersAsOneAsksFor) {
  for (const int64_t layers : {int64_t{1}, int64_t{512}, kMostDummyLayers}) {
    const auto file = OpenDummy("dummy://Tiny:layers=" + std::to_string(layers) + "/q8_0");
    EXPECT_EQ(*file->metadata().GetInt("qwen3.block_count"), layers);
    EXPECT_EQ(file->tensors().size(), 2 + 11 * static_cast<size_t>(layers));
    EXPECT_NE(file->FindTensor("blk." + std::to_string(layers - 1) + ".ffn_up.weight"), nullptr);
    EXPECT_EQ(*file->metadata().GetString("general.name"),
              "tiny:layers=" + std::to_string(layers) + " (random weights)");
  }
  EXPECT_NE(OpenDummy("dummy://tiny:layers=4/q8_0")->fingerprints(), OpenDummy("dummy://tiny/q8_0")->fingerprints());
  for (const char* layers : {"", "0", "1025", "-1", "+4", " 4", "4x", "99999999999999999999", "4:layers=5"}) {
    EXPECT_THAT(
        GgufFile::Open(std::string("dummy://tiny:layers=") + layers + "/q8_0").status(),
        testing::StatusIs(absl::StatusCode::kInvalidArgument,
                          HasSubstr(std::string("the number of layers is '") + layers + "', expected 1 to 1024")))
        << layers;
  }
  EXPECT_THAT(DummyModelShapes(), HasSubstr("kimi-k2, or any of them as NAME:layers=N"));
}

// What published files have: those of llama.cpp's converter, by the counts that it prints when it loads them.
TEST(DummyModel, HasAsManyTensorsAndParametersAsThePublishedFiles) {
  const struct {
    const char* shape;
    size_t tensors;
    double parameters;  // in 10^9
  } published[] = {
      {"qwen3-30b-a3b", 579, 30.53},  {"qwen3-235b-a22b", 1131, 235.09}, {"qwen3-coder-480b-a35b", 747, 480.15},
      {"gpt-oss-20b", 459, 20.91},    {"gpt-oss-120b", 687, 116.83},     {"glm-4.5-air", 803, 110.47},
      {"glm-4.5", 1761, 358.34},      {"deepseek-v3", 1086, 671.03},     {"kimi-k2", 1096, 1026.41},
      {"glm-4.7-flash", 844, 29.94},  {"minimax-m2", 809, 228.69},       {"deepseek-v2-lite", 404, 15.71},
      {"gemma-2-2b", 288, 2.61},      {"gemma-2-9b", 464, 9.24},         {"gemma-2-27b", 508, 27.23},
      {"gemma-3-1b", 340, 1.0},       {"gemma-3-4b", 444, 3.88},         {"gemma-3-12b", 626, 11.77},
      {"gemma-3-27b", 808, 27.01},    {"phi-3-mini-4k", 195, 3.82},      {"phi-4", 243, 14.66},
      {"mistral-7b-v0.3", 291, 7.25}, {"granite-3.3-2b", 362, 2.53},     {"granite-3.3-8b", 362, 8.17},
      {"olmo-2-7b", 355, 7.30},       {"olmo-2-13b", 443, 13.72},        {"smollm3-3b", 326, 3.08},
      {"qwen3.5-9b", 427, 8.95},      {"qwen3.5-27b", 851, 26.90},       {"qwen3-next-80b-a3b", 843, 79.67},
  };
  for (const auto& [shape, tensors, parameters] : published) {
    const auto file = OpenDummy(DummyModelPath(shape, "q4_k_m"));
    EXPECT_EQ(file->tensors().size(), tensors) << shape;
    double elements = 0;
    for (const GgufTensor& tensor : file->tensors()) elements += static_cast<double>(tensor.cols() * tensor.rows());
    EXPECT_NEAR(elements * 1e-9, parameters, 0.0051 * std::max(1.0, parameters / 100)) << shape;
  }
}

TEST(DummyModel, ExpertsAreOneTensorOfThreeDimensionsBesideARouterOfFloats) {
  const auto file = OpenDummy("dummy://qwen3-30b-a3b/q4_k_m");
  EXPECT_EQ(*file->metadata().GetInt("qwen3moe.expert_count"), 128);
  EXPECT_EQ(*file->metadata().GetInt("qwen3moe.expert_used_count"), 8);
  EXPECT_EQ(*file->metadata().GetInt("qwen3moe.expert_feed_forward_length"), 768);
  EXPECT_EQ(*file->metadata().GetInt("qwen3moe.feed_forward_length"), 6144);
  EXPECT_THAT(file->FindTensor("blk.9.ffn_gate_inp.weight")->dims, ElementsAre(2048, 128));
  EXPECT_EQ(TypeOf(*file, "blk.9.ffn_gate_inp.weight"), TensorType::kF32);
  EXPECT_THAT(file->FindTensor("blk.9.ffn_up_exps.weight")->dims, ElementsAre(2048, 768, 128));
  EXPECT_THAT(file->FindTensor("blk.9.ffn_down_exps.weight")->dims, ElementsAre(768, 2048, 128));
  EXPECT_EQ(TypeOf(*file, "blk.0.ffn_down_exps.weight"), TensorType::kQ6_K);  // as the mix has of dense layers
  EXPECT_EQ(TypeOf(*file, "blk.9.ffn_up_exps.weight"), TensorType::kQ4_K);
  EXPECT_EQ(TypeOf(*file, "output.weight"), TensorType::kQ6_K);
}

TEST(DummyModel, Mxfp4IsForExpertsWhereThereAreAny) {
  const auto file = OpenDummy("dummy://gpt-oss-120b/mxfp4");
  EXPECT_EQ(*file->metadata().GetInt("general.file_type"), 38);
  EXPECT_EQ(TypeOf(*file, "blk.0.ffn_down_exps.weight"), TensorType::kMXFP4);
  for (const char* name : {"blk.0.attn_q.weight", "token_embd.weight", "output.weight"}) {
    EXPECT_EQ(TypeOf(*file, name), TensorType::kQ8_0) << name;
  }
  EXPECT_EQ(TypeOf(*file, "blk.0.ffn_down_exps.bias"), TensorType::kF32);
  EXPECT_EQ(*file->metadata().GetInt("gpt-oss.attention.sliding_window"), 128);
  EXPECT_FALSE(file->metadata().Has("gpt-oss.attention.sliding_window_pattern"));
}

TEST(DummyModel, TheMixTakesWhatLlamaCppDoesWhereRowsDoNotFillItsBlocks) {
  const auto file = OpenDummy("dummy://glm-4.5-air/q4_k_m");
  EXPECT_EQ(TypeOf(*file, "blk.1.ffn_down_exps.weight"), TensorType::kQ8_0);   // rows of 1408, would be Q6_K
  EXPECT_EQ(TypeOf(*file, "blk.8.ffn_down_shexp.weight"), TensorType::kQ5_0);  // likewise, Q4_K
  EXPECT_EQ(TypeOf(*file, "blk.8.ffn_up_exps.weight"), TensorType::kQ4_K);
}

TEST(DummyModel, LatentAttentionHasTheTensorsOfItsAbsorbedForm) {
  const auto file = OpenDummy("dummy://deepseek-v3/q8_0");
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(*metadata.GetInt("deepseek2.attention.key_length"), 576);
  EXPECT_EQ(*metadata.GetInt("deepseek2.attention.key_length_mla"), 192);
  EXPECT_EQ(*metadata.GetInt("deepseek2.attention.head_count_kv"), 1);
  EXPECT_DOUBLE_EQ(*metadata.GetFloat("deepseek2.rope.scaling.yarn_log_multiplier"), 0.1);
  EXPECT_EQ(*metadata.GetInt("deepseek2.expert_group_count"), 8);
  EXPECT_EQ(*metadata.GetBool("deepseek2.expert_weights_norm"), true);
  EXPECT_THAT(file->FindTensor("blk.0.attn_q_b.weight")->dims, ElementsAre(1536, 128 * 192));
  EXPECT_THAT(file->FindTensor("blk.0.attn_kv_a_mqa.weight")->dims, ElementsAre(7168, 576));
  EXPECT_THAT(file->FindTensor("blk.0.attn_k_b.weight")->dims, ElementsAre(128, 512, 128));
  EXPECT_THAT(file->FindTensor("blk.0.attn_v_b.weight")->dims, ElementsAre(512, 128, 128));
  EXPECT_EQ(file->FindTensor("blk.2.ffn_gate_inp.weight"), nullptr);  // three dense layers lead
  EXPECT_NE(file->FindTensor("blk.3.exp_probs_b.bias"), nullptr);
  EXPECT_THAT(file->FindTensor("blk.3.ffn_down_shexp.weight")->dims, ElementsAre(2048, 7168));
}

TEST(DummyModel, DraftingBlocksCountAsBlocksUnlessTheModelIsCut) {
  const auto whole = OpenDummy("dummy://glm-4.5/q8_0");
  EXPECT_EQ(*whole->metadata().GetInt("glm4moe.block_count"), 93);
  EXPECT_EQ(*whole->metadata().GetInt("glm4moe.nextn_predict_layers"), 1);
  EXPECT_NE(whole->FindTensor("blk.92.nextn.eh_proj.weight"), nullptr);
  const auto cut = OpenDummy("dummy://glm-4.5:layers=6/q8_0");
  EXPECT_EQ(*cut->metadata().GetInt("glm4moe.block_count"), 6);
  EXPECT_FALSE(cut->metadata().Has("glm4moe.nextn_predict_layers"));
  EXPECT_EQ(*cut->metadata().GetInt("glm4moe.leading_dense_block_count"), 3);
  EXPECT_NE(cut->FindTensor("blk.2.ffn_gate.weight"), nullptr);
  EXPECT_NE(cut->FindTensor("blk.3.ffn_gate_exps.weight"), nullptr);
  EXPECT_EQ(cut->FindTensor("blk.5.nextn.eh_proj.weight"), nullptr);
}

TEST(DummyModel, DeltaNetsHaveTheTensorsOfTheirArchitecture) {
  const auto file = OpenDummy("dummy://qwen3.5-35b-a3b/q4_k_m");
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(*metadata.GetInt("qwen35moe.block_count"), 41);
  EXPECT_EQ(*metadata.GetInt("qwen35moe.ssm.inner_size"), 4096);
  EXPECT_EQ(*metadata.GetInt("qwen35moe.full_attention_interval"), 4);
  EXPECT_EQ(*metadata.GetInt("qwen35moe.expert_shared_feed_forward_length"), 512);
  EXPECT_FALSE(metadata.Has("qwen35moe.expert_shared_count"));
  EXPECT_FALSE(metadata.Has("qwen35moe.feed_forward_length"));
  EXPECT_THAT(*metadata.GetInts("qwen35moe.rope.dimension_sections"), ElementsAre(11, 11, 10, 0));
  EXPECT_EQ(file->tensors().size(), 733u + 20);  // of published files without the block that drafts, and that block's
  EXPECT_THAT(file->FindTensor("blk.0.attn_qkv.weight")->dims, ElementsAre(2048, 8192));
  EXPECT_THAT(file->FindTensor("blk.0.attn_gate.weight")->dims, ElementsAre(2048, 4096));
  EXPECT_THAT(file->FindTensor("blk.0.ssm_conv1d.weight")->dims, ElementsAre(4, 8192));
  EXPECT_THAT(file->FindTensor("blk.0.ssm_alpha.weight")->dims, ElementsAre(2048, 32));
  EXPECT_THAT(file->FindTensor("blk.3.attn_q.weight")->dims, ElementsAre(2048, 8192));
  EXPECT_EQ(file->FindTensor("blk.3.ssm_a"), nullptr);
  EXPECT_NE(file->FindTensor("blk.40.attn_q.weight"), nullptr);
  EXPECT_NE(file->FindTensor("blk.40.nextn.eh_proj.weight"), nullptr);
  EXPECT_THAT(file->FindTensor("blk.0.ffn_gate_inp_shexp.weight")->dims, ElementsAre(2048));
  EXPECT_EQ(TypeOf(*file, "blk.0.attn_qkv.weight"), TensorType::kQ5_K);
  for (const char* name : {"ssm_conv1d.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"}) {
    EXPECT_EQ(TypeOf(*file, std::string("blk.0.") + name), TensorType::kF32) << name;
  }
  const auto next = OpenDummy("dummy://qwen3-next-80b-a3b:layers=8/q8_0");
  EXPECT_THAT(next->FindTensor("blk.4.ssm_ba.weight")->dims, ElementsAre(2048, 64));
  EXPECT_EQ(next->FindTensor("blk.4.ssm_alpha.weight"), nullptr);
  EXPECT_FALSE(next->metadata().Has("qwen3next.rope.dimension_sections"));
  EXPECT_NE(next->FindTensor("blk.7.attn_k.weight"), nullptr);
}

TEST(DummyModel, StatesForgetAndAGateOfOneRowIsNoSwitch) {
  const auto file = OpenDummy("dummy://qwen3.5-35b-a3b:layers=4/q8_0");
  for (const float decay : FloatsOf(*file, "blk.1.ssm_a")) EXPECT_THAT(decay, AllOf(Lt(0), Gt(-1.01)));
  double sum = 0;
  for (const float weight : FloatsOf(*file, "blk.1.ffn_gate_inp_shexp.weight")) sum += double{weight} * weight;
  EXPECT_NEAR(sum, 1, 0.1);  // of a row of ones in mean square, the gate's sum has a deviation of 1
}

TEST(DummyModel, OffsetsGoFarBeyondFourGigabytes) {
  const auto file = OpenDummy("dummy://kimi-k2/bf16");
  EXPECT_GT(file->fingerprints()[0].size_bytes, uint64_t{2'000'000'000'000});
  const GgufTensor& tensor = *file->FindTensor("blk.60.ffn_down_exps.weight");
  EXPECT_GT(tensor.file_offset, uint64_t{2'000'000'000'000});
  EXPECT_EQ(tensor.bytes, uint64_t{2048} * 7168 * 384 * 2);
  const uint64_t row_bytes = 2048 * 2, last = tensor.bytes - row_bytes;
  EXPECT_GT(last, uint64_t{1} << 32);
  const std::vector<uint8_t> row = ReadOrDie(*file, tensor, last, row_bytes);
  EXPECT_NE(row, ReadOrDie(*file, tensor, last % (uint64_t{1} << 32), row_bytes));
  const std::vector<uint8_t> tail = ReadOrDie(*file, tensor, last + 100, row_bytes - 100);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), row.begin() + 100));
}

}  // namespace
}  // namespace stagecoach
