#include "stage_worker/exec/shared_work.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "stage_worker/exec/gang.h"

namespace stagecoach {
namespace {

// Threads of a gang, played by one: `next` says whose turn it is to take a run. Each goes through works of the given
// counts, as far ahead of the others as its turns allow.
class PlayedGang {
 public:
  PlayedGang(int threads, std::vector<int64_t> counts, RunLength length, uint64_t before = 0)
      : shared_(threads, before), counts_(std::move(counts)), length_(length), threads_(static_cast<size_t>(threads)) {
    for (int64_t count : counts_) taken_.emplace_back(static_cast<size_t>(count), 0);
    for (int thread = 0; thread < threads; ++thread) Start(thread);
  }

  bool Done(int thread) const { return threads_[static_cast<size_t>(thread)].at == counts_.size(); }
  bool AllDone() const {
    return std::all_of(threads_.begin(), threads_.end(), [&](const Player& p) { return p.at == counts_.size(); });
  }

  // Takes a run; goes on to the next work if there is none. Returns what was taken.
  WorkRun Turn(int thread) {
    Player& player = threads_[static_cast<size_t>(thread)];
    const WorkRun run = player.taker->Take();
    for (int64_t i = run.items.begin; i < run.items.end; ++i) ++taken_[player.at][static_cast<size_t>(i)];
    if (run.empty()) {
      ++player.at;
      Start(thread);
    }
    return run;
  }

  // How often each item of each work was taken.
  const std::vector<std::vector<int>>& taken() const { return taken_; }

 private:
  struct Player {
    size_t at = 0;
    std::vector<SharedWork::Taker> started;
    SharedWork::Taker* taker = nullptr;
  };
  void Start(int thread) {
    Player& player = threads_[static_cast<size_t>(thread)];
    if (player.at == counts_.size()) return;
    player.started.assign(1, shared_.Start(thread, counts_[player.at], length_));
    player.taker = player.started.data();
  }

  SharedWork shared_;
  const std::vector<int64_t> counts_;
  const RunLength length_;
  std::vector<Player> threads_;
  std::vector<std::vector<int>> taken_;
};

void ExpectEachOnce(const std::vector<std::vector<int>>& taken) {
  for (const std::vector<int>& work : taken) {
    EXPECT_EQ(std::count(work.begin(), work.end(), 1), static_cast<int64_t>(work.size()));
  }
}

class SharedWorkOf : public ::testing::TestWithParam<int> {};

TEST_P(SharedWorkOf, GivesEachItemToOneThreadInAnyOrderOfTurns) {
  const int threads = GetParam();
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 generator(seed);
    const auto below = [&](int64_t bound) { return static_cast<int64_t>(generator()) % bound; };
    // More and fewer items than threads, and works right behind each other, so that some threads are ahead.
    PlayedGang gang(threads, {1, 64, 0, 9000, 3, below(500), 17}, {.least = 1 + below(5), .most = 5 + below(60)});
    while (!gang.AllDone()) {
      const int thread = static_cast<int>(below(threads));
      if (!gang.Done(thread)) gang.Turn(thread);
    }
    ExpectEachOnce(gang.taken());
  }
}

TEST_P(SharedWorkOf, GivesEachItemToOneThreadWhereTheNumbersOfItsWorksStartAgain) {
  const int threads = GetParam();
  for (const uint64_t before : {(uint64_t{1} << 40) - 3, (uint64_t{1} << 39) - 3, ~uint64_t{0} - 2}) {
    std::mt19937 generator(static_cast<uint32_t>(threads));
    PlayedGang gang(threads, {100, 200, 3, 100, 50, 100}, {}, before);
    while (!gang.AllDone()) {
      const int thread = static_cast<int>(generator() % static_cast<uint32_t>(threads));
      if (!gang.Done(thread)) gang.Turn(thread);
    }
    ExpectEachOnce(gang.taken());
  }
}

TEST_P(SharedWorkOf, IsDoneByTheOthersWhenOneThreadTakesNothingMore) {
  const int threads = GetParam();
  if (threads == 1) return;  // nobody would be left
  PlayedGang gang(threads, {1000}, {});
  gang.Turn(0);  // its first run, which nobody can take from it
  for (int thread = 1; thread < threads; ++thread) {
    while (!gang.Done(thread)) gang.Turn(thread);
  }
  ExpectEachOnce(gang.taken());
}

// Every second thread is half as fast again. By equal parts the slow ones would need 1.25 times the fair share of time.
TEST_P(SharedWorkOf, EndsTogetherWhereThreadsAreOfUnequalSpeed) {
  const int threads = GetParam();
  const int64_t count = 400 * threads;
  const auto speed_of = [&](int thread) { return thread % 2 == 0 ? 1.0 : 1.5; };
  PlayedGang gang(threads, {count}, {});
  std::vector<double> busy_until(static_cast<size_t>(threads), 0);
  double speed = 0, last_end = 0;
  for (int thread = 0; thread < threads; ++thread) speed += speed_of(thread);
  while (!gang.AllDone()) {
    int thread = -1;  // who is free first
    for (int i = 0; i < threads; ++i) {
      if (!gang.Done(i) &&
          (thread < 0 || busy_until[static_cast<size_t>(i)] < busy_until[static_cast<size_t>(thread)])) {
        thread = i;
      }
    }
    const WorkPart items = gang.Turn(thread).items;
    double& until = busy_until[static_cast<size_t>(thread)];
    until += static_cast<double>(items.end - items.begin) / speed_of(thread);
    last_end = std::max(last_end, until);
  }
  ExpectEachOnce(gang.taken());
  EXPECT_LT(last_end, static_cast<double>(count) / speed * 1.1 + 2);
}

INSTANTIATE_TEST_SUITE_P(Threads, SharedWorkOf, ::testing::Values(1, 2, 3, 8, 17, 64));

TEST(SharedWork, BeginsWithTheThreadsOwnPartAndHalvesIt) {
  SharedWork shared(4);
  SharedWork::Taker taker = shared.Start(2, 400, {.least = 10});
  const WorkRun first = taker.Take(), second = taker.Take();
  EXPECT_EQ(first.items.begin, 200);
  EXPECT_EQ(first.items.end, 250);
  EXPECT_TRUE(first.more);
  EXPECT_EQ(second.items.begin, 250);
  EXPECT_EQ(second.items.end, 275);
  int64_t runs = 0, items = 75, at = 275;
  for (WorkRun run = taker.Take(); run.items.begin < 300 && !run.empty(); run = taker.Take(), ++runs) {
    EXPECT_EQ(run.items.begin, at);
    EXPECT_EQ(run.more, run.items.end < 300);
    at = run.items.end;
    items += run.items.end - run.items.begin;
    if (at == 300) break;
  }
  EXPECT_EQ(items, 100);
  EXPECT_LE(runs, 3);
}

TEST(SharedWork, GivesAThreadAloneEverythingAtOnce) {
  SharedWork shared(1);
  SharedWork::Taker taker = shared.Start(0, 400, {});
  const WorkRun run = taker.Take();
  EXPECT_EQ(run.items.begin, 0);
  EXPECT_EQ(run.items.end, 400);
  EXPECT_FALSE(run.more);
  EXPECT_TRUE(taker.Take().empty());
}

TEST(SharedWork, GivesEachItemToOneThreadOfARealGang) {
  constexpr int kThreads = 8, kWorks = 200;
  Gang gang(kThreads, {});
  std::vector<std::atomic<int>> taken(1000);
  gang.Run([&](int thread) {
    for (int work = 0; work < kWorks; ++work) {
      SharedWork::Taker taker = gang.shared().Start(thread, 1000, {.least = 1, .most = 30});
      for (WorkRun run = taker.Take(); !run.empty(); run = taker.Take()) {
        for (int64_t i = run.items.begin; i < run.items.end; ++i) taken[static_cast<size_t>(i)].fetch_add(1);
      }
    }
  });
  for (const std::atomic<int>& count : taken) ASSERT_EQ(count.load(), kWorks);
}

}  // namespace
}  // namespace stagecoach
