#include "coordinator/front/missing_ranks.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

constexpr absl::Duration kHalf = absl::Milliseconds(500);

TEST(MissingRanks, ARankThatStaysAwayBesideOthersHasEnded) {
  MissingRanks ranks;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(ranks.Waited(kHalf, true)) << i;
  EXPECT_TRUE(ranks.Waited(kHalf, true));
}

// On a busy machine mpirun itself may take seconds to start the first one.
TEST(MissingRanks, AStartThatIsSlowAsAWholeIsNoEnd) {
  MissingRanks ranks;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ranks.Waited(kHalf, false)) << "none is there yet";
  EXPECT_FALSE(ranks.Waited(kHalf, true)) << "the first one alone";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ranks.Waited(kHalf, false)) << "all are";
  EXPECT_FALSE(ranks.Waited(kHalf, true));
}

}  // namespace
}  // namespace stagecoach
