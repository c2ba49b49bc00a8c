#ifndef STAGECOACH_STAGE_WORKER_MODEL_EXPERT_PLAN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_EXPERT_PLAN_H_

#include <cstdint>

#include "stage_worker/model/expert_scratch.h"

namespace stagecoach {

// Who goes where: the pairs (row, rank) of some rows sorted by expert, those of one expert by row. A pair is known by
// its number row * used + rank, and by its place in that order. Every thread makes its own, all the same. Points into
// that thread's scratch.
struct ExpertPlan {
  // `chosen`: [rows, used], each in [0, experts).
  ExpertPlan(const int32_t* chosen, int64_t rows, int64_t used, int64_t experts, ExpertWorkerScratch* scratch);

  int32_t active_count = 0;
  const int32_t* active;  // [active_count] the experts that have a row, ascending
  const int32_t* begins;  // [experts + 1] the first place of each expert
  const int32_t* rows;    // [places]
  const int32_t* places;  // [pairs]

  int64_t RowsOf(int32_t expert) const { return begins[expert + 1] - begins[expert]; }
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_EXPERT_PLAN_H_
