#ifndef STAGECOACH_STAGE_WORKER_MODEL_LAYER_INPUT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_LAYER_INPUT_H_

// The inputs of a layer's matrix products, in the forms that their readers want. Run on all threads of the gang. With
// few rows (kFewRows) each thread prepares them all for itself, which costs less than a barrier; otherwise the threads
// share the rows and meet at a barrier, after which the whole input is there. An input is valid until the next one.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// Rows that `row_of` gives as floats [cols], valid until it is called again.
Activations PrepareInput(const InputForms& forms, int64_t cols, const StepContext& step, const Worker& worker,
                         absl::FunctionRef<const float*(int64_t row)> row_of);

// RMSNorm(x) for x [rows, D], with the layer's epsilon; x itself in a layer without pre_norms.
Activations Normalized(const StageLayer& layer, const std::vector<float>& norm, const float* x, const InputForms& forms,
                       const StepContext& step, const Worker& worker);

// What attention left in scratch.attended, for the output projection: [rows, Nq*H], or what LatentOutput makes of it.
Activations Attended(const StageLayer& layer, const StepContext& step, const Worker& worker);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_LAYER_INPUT_H_
