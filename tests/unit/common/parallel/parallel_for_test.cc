#include "common/parallel/parallel_for.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(ParallelFor, CallsEveryPieceOnce) {
  std::vector<std::atomic<int>> calls(1000);
  const absl::Status status = ParallelFor(0, 1000, [&](int, int64_t i) {
    ++calls[static_cast<size_t>(i)];
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  for (const std::atomic<int>& count : calls) ASSERT_EQ(count.load(), 1);
}

TEST(ParallelFor, NeverRunsTwoPiecesOfOneWorkerAtOnce) {
  std::vector<std::atomic<int>> running(static_cast<size_t>(ParallelWorkers(0)));
  const absl::Status status = ParallelFor(0, 2000, [&](int worker, int64_t) -> absl::Status {
    const bool alone = running.at(static_cast<size_t>(worker)).fetch_add(1) == 0;
    running[static_cast<size_t>(worker)].fetch_sub(1);
    return alone ? absl::OkStatus() : absl::InternalError("two at once");
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ParallelFor, ReturnsAFailureAndBeginsNoPieceAfterIt) {
  std::atomic<int> calls{0};
  const absl::Status status = ParallelFor(1, 1000, [&](int, int64_t i) {
    ++calls;
    return i == 10 ? absl::DataLossError("ten") : absl::OkStatus();
  });
  EXPECT_EQ(status, absl::DataLossError("ten"));
  EXPECT_EQ(calls.load(), 11);
}

TEST(ParallelFor, DoesNothingForNoPieces) {
  EXPECT_TRUE(ParallelFor(4, 0, [](int, int64_t) { return absl::InternalError("called"); }).ok());
}

TEST(ParallelFor, HasAtLeastOneWorkerAndNoMoreThanAreWanted) {
  EXPECT_GE(ParallelWorkers(0), 1);
  EXPECT_EQ(ParallelWorkers(1), 1);
  EXPECT_EQ(ParallelWorkers(1 << 20), ParallelWorkers(0));
}

}  // namespace
}  // namespace stagecoach
