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

}  // namespace
}  // namespace stagecoach
