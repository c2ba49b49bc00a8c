#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_ROUTER_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_ROUTER_H_

#include <cstdint>

#include "common/model/layer_spec.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// Which of `experts` a row goes to, and what the output of each counts: chosen [used] in descending order of the
// selection score, weights [used] of them, by RouterSpec's rules. Depends on the row's logits alone, and every machine
// gives the same bits: exp is FixedExp, sums run in double in ascending order of the expert (of the chosen: of their
// rank), quotients are rounded to float; the sum that normalises is of floats in the order of rank.
//
// A score that is no number ranks as -inf. So whatever the logits are, chosen are `used` different experts of
// [0, experts); the weights are then what arithmetic makes of them, perhaps no numbers, and whoever looks at the
// logits of the model at its end finds that.
//
// logits and selection_bias: [experts]; no bias: nullptr. work: [4 * experts] floats to calculate in.
// 0 < used <= experts; the groups divide the experts, and those that are used hold at least `used` of them.
void Route(const RouterSpec& spec, int64_t experts, int64_t used, const float* logits, const float* selection_bias,
           float* work, int32_t* chosen, float* weights);

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

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_ROUTER_H_
