#ifndef STAGECOACH_STAGE_WORKER_MODEL_DELTA_NET_DELTA_NET_H_
#define STAGECOACH_STAGE_WORKER_MODEL_DELTA_NET_DELTA_NET_H_

#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

// The input of a delta net's output projection, [rows, VD], from the normalised rows [rows, D]: DeltaNetSpec's formulas
// up to the product with Wout. Moves the state of every slice from the slot that it reads to the one that it writes;
// once, whatever its number of rows. Runs on all threads of the gang, with barriers inside; valid as PrepareInput's.
//   State    of the layer in a slot: the matrices [value heads][d * d], each as DeltaSpan has it; then the last
//            conv_kernel - 1 rows of u, the oldest first [conv_kernel - 1][conv_width].
//   Sharing  the convolution by heads; the delta rule by (slice, head), as they follow each other in memory, in runs
//            that cost about the same.
//   Bits     depend on the state before a row and the row alone: the rows of a slice run one after the other.
Activations MixRows(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_DELTA_NET_DELTA_NET_H_
