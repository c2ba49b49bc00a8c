#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/counter_rng.h"
#include "common/base/queue.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ValueRange, IsSaidInNumbersAsPeopleWriteThem) {
  EXPECT_EQ(Expected(NumberRange{0, 1e7}), "expected 0 to 10000000");
  EXPECT_EQ(Expected(NumberRange{1e-6, 1e9}), "expected 0.000001 to 1000000000");
  EXPECT_EQ(Expected(NumberRange{0, 0.95, /*open_min=*/true}), "expected more than 0 and up to 0.95");
  EXPECT_EQ(CheckNumber(-1.5, NumberRange{0, 1e6}).message(), "-1.5 is out of range, expected 0 to 1000000");
}

TEST(CounterRng, MixBitsIsTheFinaliserOfSplitMix64) {
  // The published first outputs of SplitMix64 seeded with 1234567.
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ull;
  EXPECT_EQ(MixBits(1234567 + kGamma), 6457827717110365317ull);
  EXPECT_EQ(MixBits(1234567 + 2 * kGamma), 3203168211198807973ull);
  EXPECT_EQ(MixBits(1234567 + 3 * kGamma), 9817491932198370423ull);
}

TEST(CounterRng, ANumberDependsOnItsSeedAndItsPositionOnly) {
  const double first = UniformAt(1, 100);
  (void)UniformAt(1, 5);
  EXPECT_EQ(UniformAt(1, 100), first);
  EXPECT_NE(UniformAt(2, 100), first);
  EXPECT_NE(UniformAt(1, 101), first);
  EXPECT_NE(UniformAt(100, 1), first);
}

TEST(CounterRng, NumbersAreUniformInEveryTenthOfTheUnitInterval) {
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    std::array<int, 10> counts{};
    for (uint64_t i = 0; i < 100000; ++i) {
      const double x = UniformAt(seed, i);
      ASSERT_GE(x, 0.0);
      ASSERT_LT(x, 1.0);
      ++counts[static_cast<size_t>(x * 10)];
    }
    for (int count : counts) EXPECT_NEAR(count, 10000, 500);  // over five standard deviations
  }
}

TEST(CounterRng, NeighbouringPositionsAreUncorrelated) {
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) sum += (UniformAt(3, i) - 0.5) * (UniformAt(3, i + 1) - 0.5);
  EXPECT_NEAR(sum / 100000, 0, 0.0014);  // over five standard deviations of 1/12/sqrt(100000)
}

TEST(CounterRng, NoTwoOfManyDrawsAreEqual) {
  std::set<double> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t i = 0; i < 1000; ++i) seen.insert(UniformAt(seed, i));
  }
  EXPECT_EQ(seen.size(), 100000u);
}

TEST(Clock, MonotonicTimeAdvancesWithASleepAndNeverGoesBack) {
  int64_t last = MonotonicUs();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = MonotonicUs();
    ASSERT_GE(now, last);
    last = now;
  }
  const timespec pause{0, 2000000};
  nanosleep(&pause, nullptr);
  EXPECT_GE(MonotonicUs() - last, 2000);
}

TEST(Clock, TraceTimeIsTheWallClocksAndAdvancesWithTheMonotonicOne) {
  EXPECT_NEAR(static_cast<double>(WallUs()) * 1e-6, static_cast<double>(std::time(nullptr)), 5);
  // The offset between the two clocks lies between the readings around a trace time; all readings must allow a common
  // one.
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 1000; ++i) {
    const int64_t before = MonotonicUs();
    const int64_t trace = WallUs();
    const int64_t after = MonotonicUs();
    low = std::max(low, trace - after);
    high = std::min(high, trace - before);
  }
  EXPECT_LE(low, high);
}

TEST(AlignedBuffer, StartsAtACacheLineWhateverItsSize) {
  for (size_t bytes : {0, 1, 63, 64, 65, 4096, 100001}) {
    AlignedBuffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment, 0u);
    EXPECT_EQ(buffer.size(), bytes);
    for (size_t i = 0; i < bytes; ++i) buffer.data()[i] = static_cast<uint8_t>(i);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.data()[i], static_cast<uint8_t>(i));
  }
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer from(128);
  *from.as<float>() = 1.5f;
  const uint8_t* memory = from.data();
  const AlignedBuffer to = std::move(from);
  EXPECT_EQ(to.data(), memory);
  EXPECT_EQ(*to.as<float>(), 1.5f);
  EXPECT_EQ(to.size(), 128u);
}

TEST(AlignedBuffer, RoundsUpToMultiples) {
  EXPECT_EQ(RoundUp(0, 64), 0u);
  EXPECT_EQ(RoundUp(1, 64), 64u);
  EXPECT_EQ(RoundUp(64, 64), 64u);
  EXPECT_EQ(RoundUp(65, 24), 72u);
}

TEST(Check, AFailedOneNamesTheConditionAndTheValues) {
  EXPECT_DEATH(CHECK(1 == 2), "base_test.cc:.*CHECK failed: 1 == 2");
  const int three = 3;
  EXPECT_DEATH(CHECK_LT(three, 2), "CHECK failed: three < 2 \\(3 vs. 2\\)");
  CHECK_GE(three, 3);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckDivisibleByFour(int value) {
  RETURN_IF_ERROR(Quarter(value).status());
  return absl::OkStatus();
}

TEST(StatusMacros, PassValuesOnAndErrorsUp) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
  EXPECT_TRUE(CheckDivisibleByFour(4).ok());
  EXPECT_EQ(CheckDivisibleByFour(2), absl::InvalidArgumentError("odd"));
}

TEST(ClockOffset, IsInTheMiddleOfTheRoundTrip) {
  ClockOffset clock;
  EXPECT_FALSE(clock.known());
  clock.Add(1000, 5050, 1100);
  EXPECT_TRUE(clock.known());
  EXPECT_EQ(clock.offset_us(), 4000);
  EXPECT_EQ(clock.error_us(), 51);
}

TEST(ClockOffset, KeepsTheShortestRoundTrip) {
  ClockOffset clock;
  clock.Add(0, 100, 200);
  clock.Add(1000, 1007, 1010);
  clock.Add(2000, 2100, 2020);
  EXPECT_EQ(clock.offset_us(), 2);
  EXPECT_EQ(clock.error_us(), 6);
}

// Whatever the two ways take, the offset that was made up lies within the error.
TEST(ClockOffset, IsRightToWithinItsError) {
  for (const int64_t offset : {-5'000'000, -1, 0, 3, 70'000}) {
    for (const int64_t there : {0, 1, 40, 900}) {
      for (const int64_t back : {0, 2, 35, 1000}) {
        ClockOffset clock;
        clock.Add(10'000, 10'000 + there + offset, 10'000 + there + back);
        EXPECT_LE(std::abs(clock.offset_us() - static_cast<double>(offset)), clock.error_us());
      }
    }
  }
}

TEST(ClockOffset, LeavesOutARoundTripThatEndsBeforeItBegins) {
  ClockOffset clock;
  clock.Add(100, 50, 90);
  EXPECT_FALSE(clock.known());
}

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

TEST(Queue, SaysWhetherItsTakerWouldWait) {
  Queue<int> queue;
  EXPECT_TRUE(queue.TakeWaits());
  queue.Push(1);
  EXPECT_FALSE(queue.TakeWaits());
  queue.TryTake();
  EXPECT_TRUE(queue.TakeWaits());
  queue.End();
  EXPECT_FALSE(queue.TakeWaits()) << "nothing is to be waited for";
}

TEST(Queue, WakesItsTakerAtTheEnd) {
  Queue<int> queue;
  std::thread taker([&] { EXPECT_EQ(queue.Take(), std::nullopt); });
  queue.End();
  taker.join();
}

TEST(ShownText, IsInQuotesAsItIs) {
  EXPECT_EQ(ShownText("qwen3"), "'qwen3'");
  EXPECT_EQ(ShownText(""), "''");
}

TEST(ShownText, GivesNoOrdersAndNoLinesOfItsOwn) {
  EXPECT_EQ(ShownText("a\x1b[2J\nruns here: yes"), "'a\\x1b[2J\\nruns here: yes'");
}

TEST(ShownText, IsNeverLong) {
  EXPECT_EQ(ShownText(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(ShownText(std::string(5000000, 'x')), "'" + std::string(60, 'x') + "...'");
}

TEST(CutText, EndsBetweenTwoCharacters) {
  EXPECT_EQ(CutText(""), "");
  EXPECT_EQ(CutText(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(CutText(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 4), "h\xC3\xA9h\xC3\xA9");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 3), "h\xC3\xA9h...");
  EXPECT_EQ(CutText("h\xC3\xA9h\xC3\xA9", 2), "h\xC3\xA9...");
  EXPECT_EQ(CutText(std::string(5000000, '\x80'), 5).size(), 23u) << "no character begins";
}

}  // namespace
}  // namespace stagecoach
