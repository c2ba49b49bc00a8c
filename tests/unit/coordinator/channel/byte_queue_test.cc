#include "coordinator/channel/byte_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/base/counter_rng.h"
#include "coordinator/channel/water_mark.h"

namespace stagecoach {
namespace {

TEST(ByteQueue, GivesBytesInOrderFromMemoryThatIsBoundedByWhatWaits) {
  ByteQueue queue;
  std::string expected;  // what waits
  uint64_t random = 1, written = 0, most = 0;
  for (int round = 0; round < 20000; ++round) {
    random = MixBits(random);
    // Long phases of growth and of decline.
    const bool grows = (round / 2000) % 2 == 0;
    const size_t in = random % (grows ? 900 : 300), out = (random >> 20) % (grows ? 300 : 900);
    char* room = queue.Reserve(in);
    ASSERT_LE(queue.capacity(), std::max(ByteQueue::kMinCapacity, 4 * (expected.size() + in)));
    for (size_t i = 0; i < in; ++i) room[i] = static_cast<char>(written++ * 131 >> 3);
    expected.append(room, in);
    queue.Append(in);
    const size_t taken = std::min(out, queue.size());
    ASSERT_EQ(std::memcmp(queue.data(), expected.data(), expected.size()), 0);
    queue.Take(taken);
    expected.erase(0, taken);
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_LE(queue.capacity(), std::max(ByteQueue::kMinCapacity, 4 * expected.size()));
    most = std::max<uint64_t>(most, queue.capacity());
  }
  EXPECT_GT(most, 500000u);
}

TEST(WaterMark, StopsAtTheHighMarkAndGoesOnBelowTheLowOne) {
  WaterMark mark(100, 40);
  EXPECT_FALSE(mark.Waits(99));
  EXPECT_TRUE(mark.Waits(100));
  EXPECT_TRUE(mark.Waits(70));
  EXPECT_TRUE(mark.Waits(40));
  EXPECT_FALSE(mark.Waits(39));
  EXPECT_FALSE(mark.Waits(70));
}

}  // namespace
}  // namespace stagecoach
