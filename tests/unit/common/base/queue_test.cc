#include "common/base/queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(Queue, HandsItemsOverInOrderAndEnds) {
  Queue<std::unique_ptr<int>> queue;
  std::vector<int> taken;
  std::thread taker([&] {
    while (auto item = queue.Take()) taken.push_back(**item);
  });
  std::vector<int> pushed;
  for (int i = 0; i < 2000; ++i) {
    pushed.push_back(i);
    queue.Push(std::make_unique<int>(i));
  }
  queue.End();
  taker.join();
  EXPECT_EQ(taken, pushed);
  EXPECT_TRUE(queue.Exhausted());
  EXPECT_EQ(queue.TryTake(), std::nullopt);
}

TEST(Queue, GivesWhatIsLeftAfterItsEnd) {
  Queue<int> queue;
  EXPECT_EQ(queue.TryTake(), std::nullopt);
  queue.Push(1);
  queue.Push(2);
  queue.End();
  EXPECT_FALSE(queue.Exhausted());
  EXPECT_EQ(queue.TryTake(), 1);
  EXPECT_EQ(queue.Take(), 2);
  EXPECT_TRUE(queue.Exhausted());
  EXPECT_EQ(queue.Take(), std::nullopt);
}

TEST(Queue, WakesItsTakerAtTheEnd) {
  Queue<int> queue;
  std::thread taker([&] { EXPECT_EQ(queue.Take(), std::nullopt); });
  queue.End();
  taker.join();
}

}  // namespace
}  // namespace stagecoach
