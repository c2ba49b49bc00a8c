#include "stage_worker/exec/gang.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "common/host/host_info.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

class GangOf : public ::testing::TestWithParam<int> {};

TEST_P(GangOf, RunsTheWorkOnceOnEveryThread) {
  const int threads = GetParam();
  Gang gang(threads, {});
  EXPECT_EQ(gang.threads(), threads);
  std::vector<int> calls(threads, 0);  // each written by its own thread
  for (int i = 0; i < 200; ++i) {
    gang.Run([&](int thread) { ++calls[thread]; });
    for (int thread = 0; thread < threads; ++thread) ASSERT_EQ(calls[thread], i + 1) << thread;
  }
}

TEST_P(GangOf, SeesAllWritesOfAPhaseAfterItsBarrier) {
  const int threads = GetParam();
  Gang gang(threads, {});
  std::vector<int> value(threads, 0);
  std::atomic<int> wrong{0};
  constexpr int kPhases = 300;
  for (int run = 0; run < 3; ++run) {
    gang.Run([&](int thread) {
      for (int phase = 1; phase <= kPhases; ++phase) {
        value[thread] = run * kPhases + phase;
        gang.Barrier();
        for (int other = 0; other < threads; ++other) wrong += value[other] != run * kPhases + phase;
        gang.Barrier();
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, GangOf, ::testing::Values(1, 2, 3, 4, 8, 64));

TEST_P(GangOf, AccountsForAllOfItsTime) {
  const int threads = GetParam();
  Gang gang(threads, {});
  constexpr int kRuns = 20;
  std::chrono::nanoseconds outside{0}, inside{0};
  for (int run = 0; run < kRuns; ++run) {
    std::chrono::steady_clock::time_point first, last;
    const auto before = std::chrono::steady_clock::now();
    gang.Run([&](int thread) {
      if (thread == 0) first = std::chrono::steady_clock::now();
      PartClock& clock = gang.clock(thread);
      clock.Enter(StepPart::kHead);
      clock.Read(10);
      if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (threads > 1) clock.Arrive();
      gang.Barrier();
      if (threads > 1) clock.Leave();
      clock.Enter(StepPart::kSampling);
      if (thread == threads - 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (thread == 0) last = std::chrono::steady_clock::now();
    });
    outside += std::chrono::steady_clock::now() - before;
    inside += last - first;
  }
  const StepAccount account = gang.TakeAccount();
  ASSERT_EQ(account.size(), kStepParts);
  // Exactly the time between the calls of two clocks, which the gang reads within `outside` and around `inside`.
  constexpr int64_t kRounding = kStepParts;
  EXPECT_LE(GangNs(account), outside.count() + kRounding);
  EXPECT_GE(GangNs(account), inside.count() - kRounding);
  const StepPartTotals& head = account[static_cast<size_t>(StepPart::kHead)];
  const StepPartTotals& sampling = account[static_cast<size_t>(StepPart::kSampling)];
  EXPECT_EQ(head.bytes, kRuns * 10 * threads);
  // One of the threads sleeps, the others wait for it: their mean is no less than its part of the threads.
  EXPECT_GE(head.busy_ns, kRuns * 1000000 / threads);
  EXPECT_GE(sampling.busy_ns, kRuns * 2000000 / threads);
  EXPECT_EQ(head.wait_ns > 0 && sampling.wait_ns > 0, threads > 1);
  EXPECT_EQ(GangNs(gang.TakeAccount()), 0) << "an account begins where the last one was taken";
}

TEST(Gang, EndsWithoutEverHavingRun) { Gang gang(4, {}); }

TEST(Gang, SpinsOnlyWithACpuForEveryThreadAndWithoutContenders) {
  const std::vector<int> cpus = AllowedCpus();
  const int cores = AllowedCores();
  EXPECT_TRUE(Gang(cores, {}).spins());
  EXPECT_FALSE(Gang(cores, {}, /*contended=*/true).spins());
  EXPECT_FALSE(Gang(cores + 1, {}).spins());
  EXPECT_FALSE(Gang(2, {cpus[0]}).spins()) << "both on one CPU";
}

TEST(Gang, MeetsInItsBarriersWithoutSpinning) {
  Gang gang(3, {}, /*contended=*/true);
  std::atomic<int> sum{0};
  std::atomic<int> wrong{0};
  for (int run = 1; run <= 20; ++run) {
    gang.Run([&](int) {
      for (int phase = 0; phase < 10; ++phase) {
        ++sum;
        gang.Barrier();
        wrong += sum != 3 * (10 * (run - 1) + phase + 1);
        gang.Barrier();
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Gang, WakesThreadsThatHaveFallenAsleep) {
  Gang gang(3, {});
  std::atomic<int> calls{0};
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than they spin
    gang.Run([&](int thread) {
      if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      gang.Barrier();
      ++calls;
    });
  }
  EXPECT_EQ(calls.load(), 9);
}

// Where each thread of a gang may run. From a thread of its own, so that this test's thread stays free.
std::vector<std::vector<int>> PlacesOf(int threads, const std::vector<int>& cpus) {
  std::vector<std::vector<int>> seen(static_cast<size_t>(threads));
  std::thread([&] {
    Gang gang(threads, cpus);
    gang.Run([&](int thread) { seen[static_cast<size_t>(thread)] = AllowedCpus(); });
  }).join();
  return seen;
}

TEST(Gang, BindsEachThreadToACpuOfItsOwnWhereThereIsOneForEach) {
  const std::vector<int> allowed = AllowedCpus();
  const std::vector<std::vector<int>> seen = PlacesOf(static_cast<int>(allowed.size()), allowed);
  for (size_t thread = 0; thread < seen.size(); ++thread) EXPECT_EQ(seen[thread], std::vector<int>{allowed[thread]});
}

TEST(Gang, KeepsItsThreadsWithinASetThatIsNotOneForEach) {
  std::vector<int> cpus = AllowedCpus();
  for (const std::vector<int>& place : PlacesOf(static_cast<int>(cpus.size()) + 1, cpus)) EXPECT_EQ(place, cpus);
  if (cpus.size() > 1) cpus.pop_back();
  for (const std::vector<int>& place : PlacesOf(static_cast<int>(cpus.size()) + 1, cpus)) EXPECT_EQ(place, cpus);
}

TEST(Gang, LeavesItsThreadsAloneWithoutASet) {
  for (const std::vector<int>& place : PlacesOf(2, {})) EXPECT_EQ(place, AllowedCpus());
}

TEST(Gang, SharesItemsContiguouslyAndEvenly) {
  for (int64_t count : {0, 1, 5, 16, 17, 1000}) {
    for (int threads = 1; threads <= 8; ++threads) {
      int64_t next = 0;
      for (int thread = 0; thread < threads; ++thread) {
        const Gang::Part part = Gang::Share(count, thread, threads);
        ASSERT_EQ(part.begin, next);
        ASSERT_GE(part.end - part.begin, count / threads);
        ASSERT_LE(part.end - part.begin, count / threads + 1);
        next = part.end;
      }
      ASSERT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace stagecoach
