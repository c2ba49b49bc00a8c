#include "coordinator/plan/stage_memory.h"

#include <memory>
#include <string>
#include <vector>

#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/coordinator/plan/plan_inputs.h"

namespace stagecoach {
namespace {

// Layers [begin, end) of Model(); the stages at its ends own them.
pb::StageAssignment Stage(const ModelDescription& model, int64_t begin, int64_t end) {
  pb::StageAssignment stage;
  stage.set_stages(2);
  stage.set_first_layer(begin);
  stage.set_last_layer(end);
  stage.set_owns_embedding(begin == 0);
  stage.set_owns_head(end == model.hyper.layer_count());
  stage.set_block_tokens(32);
  stage.set_kv_type(pb::KV_TYPE_F16);
  stage.set_wire_type(pb::WIRE_TYPE_F32);
  stage.set_isa(pb::INSTRUCTION_SET_AVX2);
  stage.set_threads(2);
  stage.set_context(4096);
  stage.set_max_rows(512);
  stage.set_max_slices(8);
  stage.set_in_flight(2);
  stage.set_max_open_tokens(16384);
  return stage;
}

TEST(StageMemory, CountsEachPartByTheFunctionThatTheStageUses) {
  const auto model = Model("qwen3-0.6b/q8_0");
  const pb::StageAssignment stage = Stage(*model, 19, 28);
  const auto memory = StageMemoryOf(*model, stage, {100});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->weights, StageWeightMemory(*model, 19, 28, false, true));
  EXPECT_EQ(memory->kv, uint64_t{100} * 32 * 4096 * 9);  // 8 heads of 128, K and V, 2 bytes: 4096 a token and layer
  const StepLimits limits = {.max_rows = 512, .max_slices = 8, .context = 4096, .threads = 2};
  EXPECT_EQ(memory->scratch, ScratchSizesOf(*model, 19, 28, true, limits).bytes());
  pb::StageAssignment with_pool = stage;
  with_pool.add_group_blocks(100);
  EXPECT_EQ(memory->frames, LimitsOf(with_pool, 1024, 151936).StageFrameBytes(true, 2));
  EXPECT_EQ(memory->total(), memory->weights + memory->kv + memory->scratch + memory->frames);
}

TEST(StageMemory, AStageWithBothEndsOfATiedModelHoldsTheMatrixOnce) {
  const auto model = Model("qwen3-0.6b/q8_0");
  const uint64_t whole = StageMemoryOf(*model, Stage(*model, 0, 28), {1})->weights;
  const uint64_t halves = StageMemoryOf(*model, Stage(*model, 0, 14), {1})->weights +
                          StageMemoryOf(*model, Stage(*model, 14, 28), {1})->weights;
  EXPECT_EQ(halves - whole, uint64_t{151936} * 1024 / 32 * 34);  // Q8_0: 34 bytes for 32 weights
}

TEST(StageMemory, AKvTypeOfHalfTheBytesTakesHalfThePool) {
  const auto model = Model("qwen3-0.6b/q8_0");
  pb::StageAssignment stage = Stage(*model, 0, 14);
  const std::vector<uint64_t> half = *KvBlockBytes(*model, stage);
  stage.set_kv_type(pb::KV_TYPE_F32);
  EXPECT_THAT(*KvBlockBytes(*model, stage), ::testing::ElementsAre(2 * half[0]));
}

TEST(StageMemory, RefusesChoicesThatAreNone) {
  const auto model = Model("tiny/q8_0");
  pb::StageAssignment stage = Stage(*model, 0, 3);
  stage.set_kv_type(pb::KV_TYPE_UNSPECIFIED);
  EXPECT_EQ(StageMemoryOf(*model, stage, {1}).status().code(), absl::StatusCode::kInvalidArgument);
  stage = Stage(*model, 0, 3);
  stage.set_isa(pb::INSTRUCTION_SET_UNSPECIFIED);
  EXPECT_EQ(StageMemoryOf(*model, stage, {1}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagecoach
