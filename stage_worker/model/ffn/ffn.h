#ifndef STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_
#define STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_

#include <cstdint>

#include "common/model/hyper_parameters.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// out [rows, D] += the feed-forward part of the input m [rows, D]. Runs on all threads of the gang with barriers
// inside; the one after it is the caller's.
//
// A unit is y = Wdown act(Wgate m + b, Wup m + b) + b; a dense layer has one. In a layer of experts a router chooses
// for every row by that row alone. Per row, with y_i of the i-th chosen expert, in float, column by column:
//   sum = w_0 y_0;  sum = fma(w_i, y_i, sum) for i = 1, 2, ..;  sum = fma(gate, the shared unit's output, sum);
//   out += sum,  where gate = sigmoid(shared_gate . m), or 1 without FfnSpec::shared_gated.
// Which rows are computed together, in which pieces and by which thread changes no bit.
void AddFfn(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
            float* out);

// The router: chosen [used] of `experts` in descending order of the selection score, and their weights [used], by
// RouterSpec's rules.
//   Arguments   logits [experts]; selection_bias [experts] or nullptr; work [4 * experts] floats of scratch memory.
//   Requires    0 < used <= experts; groups divide the experts, and those in use hold at least `used` of them.
//   Bits        the same on every machine: exp is FixedExp; sums are of doubles by expert (of the chosen: by rank),
//               quotients are rounded to float; the normalising sum is of floats by rank.
//   NaN         ranks as -inf. So `used` different experts are chosen whatever the logits are; weights may then be NaN,
//               which the check of the model's final logits finds.
void Route(const RouterSpec& spec, int64_t experts, int64_t used, const float* logits, const float* selection_bias,
           float* work, int32_t* chosen, float* weights);

// The pairs (row, rank) of some rows sorted by expert, those of one expert by row. A pair has the number row * used +
// rank, and a place in that order. Every thread makes its own, equal plan, in its own scratch memory.
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

#endif  // STAGECOACH_STAGE_WORKER_MODEL_FFN_FFN_H_
