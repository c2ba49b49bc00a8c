#include "stage_worker/kv/state_pool.h"

#include <limits>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

TEST(StatePool, GivesEveryLayerOfEverySlotMemoryOfItsOwn) {
  const std::vector<int64_t> floats = {48, 17, 80};
  const StatePool pool = StatePool::Create(floats, 5).value();
  EXPECT_EQ(pool.bytes(), 5u * (48 + 17 + 80) * 4);
  for (SlotId slot = 0; slot < 5; ++slot) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      const int64_t count = floats[static_cast<size_t>(layer)];
      std::fill_n(pool.State(slot, layer), count, static_cast<float>(10 * slot + layer));  // the sanitizer sees the end
    }
  }
  for (SlotId slot = 0; slot < 5; ++slot) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      const float* const state = pool.State(slot, layer);
      for (int64_t i = 0; i < floats[static_cast<size_t>(layer)]; ++i) ASSERT_EQ(state[i], 10 * slot + layer);
    }
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool.State(0, 0)) % 64, 0u);
}

TEST(StatePool, IsEmptyOnAStageWithoutRecurrentLayers) { EXPECT_EQ(StatePool().bytes(), 0u); }

TEST(StatePool, CostsNothingBeforeItIsUsed) {
  const StatePool pool = StatePool::Create({int64_t{1} << 24}, 4096).value();  // 256 GiB, more than machines spare
  pool.State(4095, 0)[0] = 7;
  EXPECT_EQ(pool.State(4095, 0)[0], 7);
}

TEST(StatePool, RefusesShapesOutOfRange) {
  using testing::StatusIs;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(StatePool::Create({}, 4).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 state slots for 0 recurrent layers")));
  EXPECT_THAT(StatePool::Create({16}, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 state slots")));
  EXPECT_THAT(StatePool::Create({16, 0}, 4).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a state of 0 floats")));
  EXPECT_THAT(StatePool::Create({kHuge, kHuge, kHuge}, 4).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overflows; lower the number of slots")));
  EXPECT_THAT(StatePool::Create({kHuge / 4}, 1 << 20).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overflows")));
  EXPECT_EQ(StatePool::Create({int64_t{1} << 40}, 1 << 16).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace stagecoach
