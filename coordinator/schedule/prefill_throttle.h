#ifndef STAGECOACH_COORDINATOR_SCHEDULE_PREFILL_THROTTLE_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_PREFILL_THROTTLE_H_

// How many rows of prompts a micro-batch takes under Policy::kThrottled, so that those that decode wait little and the
// prompts still come through. Pure and stateless.
//
//   P = max(MinP, min(ceil(W / T), floor(MaxP * max(0, (f - r) / (1 - r))), P_itl))
//   P_itl = floor((G / M - t0 - e * (w(D + P_itl) - 1) - c * D) / c)
// W: prompt rows that wait, of admitted sequences and of those that could be admitted: they are spread over T
// micro-batches. f: the free share of the KV blocks: the fewer are left, the slower new ones are filled, for what
// decodes needs them. P_itl: what keeps the gap between two tokens of a sequence at G: a decode row comes back after M
// micro-batches, each as long as the slowest stage needs for it (t0, e, w and c: see row_cost.h; without experts e is
// 0), and D of its rows are decode rows. MinP rows are always given, so a prompt never stands still; a micro-batch
// without room for as many takes what there is room for.
//
// While nobody decodes nobody waits, and a micro-batch takes what it has room for. That is not said of one that happens
// to have no decode row while others decode: those that come behind it wait for it all the same.
//
// Source: token throttling of gLLM (Guo et al., 2025, arXiv 2504.14775), whose rule has no P_itl and the same T and r,
// and where MaxP bounds a micro-batch without decode rows too.

#include <cstdint>
#include <limits>
#include <optional>

#include "common/job/job_choices.h"
#include "coordinator/schedule/row_cost.h"

namespace stagecoach {

class PrefillThrottle {
 public:
  static constexpr int64_t kTurns = 8;       // T
  static constexpr double kReserved = 0.05;  // r
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  struct Load {
    int64_t waiting_rows = 0;   // W
    double free_share = 1;      // f: of the block group that has least
    bool decoding = false;      // somebody does
    int64_t decode_rows = 0;    // D, of this micro-batch
    int32_t micro_batches = 1;  // M, in flight at once
    std::optional<RowCost> cost;
  };

  // most_rows: MaxP. gap_us: G, 0 for none.
  PrefillThrottle(int64_t most_rows, double gap_us) : most_rows_(most_rows), gap_us_(gap_us) {}

  // P; at least 1. kNoLimit while nobody decodes.
  int64_t Rows(const Load& load) const;

  // MinP: fewer with a wanted gap, which many small steps may keep and none of 32 rows does.
  int64_t least_rows() const { return gap_us_ > 0 ? kThrottledLeastRowsForGap : kThrottledLeastRows; }

 private:
  // P_itl; none before the cost of a row is known.
  int64_t RowsInGap(const Load& load) const;

  const int64_t most_rows_;
  const double gap_us_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_PREFILL_THROTTLE_H_
