#include "stage_worker/weights/panel_shares.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// The shares of all threads follow each other and make up the whole, also where threads get nothing.
template <typename Share>
void ExpectWhole(int64_t panels, int threads, const Share& share) {
  int64_t end = 0;
  for (int thread = 0; thread < threads; ++thread) {
    const Gang::Part part = share(thread);
    EXPECT_EQ(part.begin, end) << panels << " panels, thread " << thread << " of " << threads;
    EXPECT_GE(part.end, part.begin) << panels << " panels, thread " << thread << " of " << threads;
    end = part.end;
  }
  EXPECT_EQ(end, panels) << threads << " threads";
}

TEST(PanelShares, MakeUpTheWholeMatrix) {
  for (int64_t panels = 1; panels <= 12; ++panels) {
    const PackedMatrix matrix = {.rows = panels * kPanelRows - 6};
    for (int threads = 1; threads <= 9; ++threads) {
      ExpectWhole(panels, threads, [&](int thread) { return SharePanels(matrix, thread, threads); });
      ExpectWhole(panels, threads, [&](int thread) {
        const Gang::Part part = SharePanelPairs(matrix, thread, threads);
        EXPECT_TRUE(part.begin % 2 == 0 || part.begin == panels) << part.begin;
        return part;
      });
    }
  }
}

}  // namespace
}  // namespace stagecoach
