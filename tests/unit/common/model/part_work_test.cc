#include "common/model/part_work.h"

#include <memory>
#include <string>

#include "common/model/footprint.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

std::shared_ptr<const ModelDescription> Model(const std::string& name) {
  auto model = OpenModel("dummy://" + name);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

TEST(PartWork, CountsTheMatricesOfALayerAndOfTheHead) {
  // Hidden 1024, 16 heads and 8 KV heads of 128, FFN 3072, vocabulary 151936.
  const auto model = Model("qwen3-0.6b/q8_0");
  const auto parts = PartsOf(*model, KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->layers.size(), 28u);
  EXPECT_EQ(parts->hidden, 1024);
  const double matrices = 1024.0 * (2048 + 1024 + 1024) + 2048.0 * 1024 + 3 * 1024.0 * 3072;
  for (const PartWork& layer : parts->layers) {
    EXPECT_DOUBLE_EQ(layer.int8_ops, 2 * matrices);
    EXPECT_DOUBLE_EQ(layer.bf16_ops, 0);
    EXPECT_DOUBLE_EQ(layer.f32_ops, 0);
    EXPECT_DOUBLE_EQ(layer.attention_ops, 4 * 2048);
    EXPECT_DOUBLE_EQ(layer.kv_token_bytes, 2 * 1024 * 2);
  }
  EXPECT_DOUBLE_EQ(parts->head.int8_ops, 2 * 1024.0 * 151936);
  EXPECT_DOUBLE_EQ(parts->head.kv_token_bytes, 0);
}

TEST(PartWork, KeepsTheBytesThatTheFileHas) {
  const auto model = Model("qwen3-8b/q4_k_m");  // layers of several types
  const auto parts = PartsOf(*model, KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const ModelCosts costs = CostsOf(*model);
  for (size_t i = 0; i < costs.layer_bytes.size(); ++i) {
    EXPECT_DOUBLE_EQ(parts->layers[i].bytes_kept, costs.layer_bytes[i]);
    EXPECT_DOUBLE_EQ(parts->layers[i].BytesTouched(1), costs.layer_bytes[i]);
    EXPECT_DOUBLE_EQ(parts->layers[i].BytesTouched(512), costs.layer_bytes[i]);
    EXPECT_DOUBLE_EQ(parts->layers[i].BytesTouched(0), 0);
  }
  EXPECT_DOUBLE_EQ(parts->head.bytes_kept, costs.head_bytes);
}

TEST(PartWork, TheInstructionSetDecidesHowBf16IsMultiplied) {
  const auto model = Model("tiny/bf16");
  EXPECT_GT(PartsOf(*model, KvType::kF16, true)->layers[0].bf16_ops, 0);
  EXPECT_DOUBLE_EQ(PartsOf(*model, KvType::kF16, true)->layers[0].f32_ops, 0);
  EXPECT_DOUBLE_EQ(PartsOf(*model, KvType::kF16, false)->layers[0].bf16_ops, 0);
  EXPECT_GT(PartsOf(*model, KvType::kF16, false)->layers[0].f32_ops, 0);
}

// Distinct experts that B rows choose, over the k of one row.
TEST(PartWork, ReadsOfExpertsWhatSomeRowChooses) {
  const struct {
    double experts, used;
    double times[7];  // what one row reads, of B = 2, 4, .. 128
  } cases[] = {
      {128, 8, {1.9, 3.6, 6.5, 10.3, 14.0, 15.7, 16.0}}, {160, 8, {2.0, 3.7, 6.7, 11.2, 16.1, 19.2, 20.0}},
      {256, 8, {2.0, 3.8, 7.2, 12.7, 20.4, 27.8, 31.5}}, {128, 4, {2.0, 3.8, 7.2, 12.7, 20.4, 27.8, 31.5}},
      {384, 8, {2.0, 3.9, 7.4, 13.7, 23.5, 35.5, 44.8}},
  };
  for (const auto& [experts, used, times] : cases) {
    const PartWork layer = {.bytes_kept = 1e9, .expert_bytes = 1e9, .expert_share = used / experts};
    EXPECT_NEAR(layer.BytesTouched(1), 1e9 * used / experts, 1);
    double rows = 2;
    for (const double expected : times) {
      EXPECT_NEAR(layer.BytesTouched(rows) / layer.BytesTouched(1), expected, 0.051) << experts << ' ' << rows;
      rows *= 2;
    }
    EXPECT_NEAR(layer.BytesTouched(1e6), 1e9, 1);
    EXPECT_DOUBLE_EQ(layer.BytesTouched(0), 0);
  }
}

TEST(PartWork, ARowGoesThroughTheExpertsThatItChoosesAndReadsThoseOfOthersNot) {
  // Hidden 2048, 32 heads and 4 KV heads of 128, 128 experts of 768 of which a row uses 8.
  const auto model = Model("qwen3-30b-a3b:layers=2/q8_0");
  const auto parts = PartsOf(*model, KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const PartWork& layer = parts->layers[1];
  const double attention = 2048.0 * (4096 + 512 + 512) + 4096.0 * 2048, expert = 3 * 2048.0 * 768;
  EXPECT_DOUBLE_EQ(layer.int8_ops, 2 * (attention + 8 * expert));
  EXPECT_DOUBLE_EQ(layer.f32_ops, 2 * 2048.0 * 128);  // the router
  EXPECT_DOUBLE_EQ(layer.expert_bytes, 128 * expert / 32 * 34);
  EXPECT_DOUBLE_EQ(layer.expert_share, 8.0 / 128);
  const double rest = attention / 32 * 34 + 4 * (2 * 2048 + 2 * 128 + 2048.0 * 128);  // norms and router
  EXPECT_DOUBLE_EQ(layer.bytes_kept, rest + layer.expert_bytes);
  EXPECT_NEAR(layer.BytesTouched(1), rest + layer.expert_bytes / 16, 1);
  EXPECT_NEAR(layer.BytesTouched(1e6), layer.bytes_kept, 1);
}

TEST(PartWork, DenseLeadsAndSharedExpertsAreReadByEveryRow) {
  const auto model = Model("glm-4.5:layers=4/q8_0");  // three dense layers lead
  const auto parts = PartsOf(*model, KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const PartWork &lead = parts->layers[2], &layer = parts->layers[3];
  EXPECT_EQ(lead.expert_bytes, 0);
  EXPECT_DOUBLE_EQ(lead.BytesTouched(1), lead.bytes_kept);
  const double expert = 3 * 5120.0 * 1536 / 32 * 34;
  EXPECT_DOUBLE_EQ(layer.expert_bytes, 160 * expert);
  EXPECT_GT(layer.BytesTouched(1) - 8 * expert, expert);  // the shared one, and attention
}

TEST(PartWork, OnlyEverySecondLayerOfGptOssSeesAll) {
  const auto parts = PartsOf(*Model("gpt-oss-20b:layers=4/mxfp4"), KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  for (size_t layer = 0; layer < 4; ++layer) EXPECT_EQ(parts->layers[layer].window, layer % 2 == 0 ? 128 : 0);
  EXPECT_EQ(parts->window, 128);
  EXPECT_EQ(PartsOf(*Model("qwen3-0.6b/q8_0"), KvType::kF16, false)->window, 0);
}

TEST(PartWork, ALatentRowIsReadOnceForKeysAndValues) {
  // 128 heads; rows of 512 + 64.
  const auto parts = PartsOf(*Model("deepseek-v3:layers=4/q8_0"), KvType::kF16, false);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_DOUBLE_EQ(parts->layers[3].kv_token_bytes, 576 * 2);
  EXPECT_DOUBLE_EQ(parts->layers[3].attention_ops, 2.0 * 128 * (2 * 512 + 64));
}

TEST(PartWork, OfAWholeModelTheShareOfOneRowIsWhatItsNameSays) {
  // Billions of parameters that a token uses, by what one row's step touches of 16 bits a weight; embeddings aside.
  const struct {
    const char* shape;
    double active;
  } cases[] = {{"qwen3-30b-a3b", 3}, {"qwen3-235b-a22b", 22}, {"gpt-oss-120b", 5.1}, {"glm-4.5", 32}, {"kimi-k2", 32}};
  for (const auto& [shape, active] : cases) {
    const auto model = Model(std::string(shape) + "/bf16");
    const auto parts = PartsOf(*model, KvType::kF16, true);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_NEAR(parts->Bytes().BytesTouched(1) / 2e9, active, 0.06 * active) << shape;
  }
}

TEST(LayerToTime, IsTheFirstOfExpertsThatSeesAll) {
  EXPECT_EQ(LayerToTime(Model("qwen3-0.6b/q8_0")->hyper), 0);
  EXPECT_EQ(LayerToTime(Model("glm-4.5/q8_0")->hyper), 3);
  EXPECT_EQ(LayerToTime(Model("gpt-oss-20b/mxfp4")->hyper), 1);
  EXPECT_EQ(LayerToTime(Model("gemma-3-4b/q8_0")->hyper), 5);
}

}  // namespace
}  // namespace stagecoach
