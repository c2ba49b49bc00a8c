#ifndef STAGECOACH_STAGE_WORKER_MODEL_KEY_PLACE_H_
#define STAGECOACH_STAGE_WORKER_MODEL_KEY_PLACE_H_

#include <cstdint>

#include "stage_worker/model/stage_layer.h"
#include "stage_worker/model/step_context.h"

namespace stagecoach {

// Rotates the rope.dims elements at x by the angles of a row of the step, if the layer rotates.
void Rotate(const StageLayer& layer, int64_t row, const StepContext& step, float* x);

// Write a row's key [key_dim] or value [H] of a KV head to its place in the pool.
void StoreK(const StageLayer& layer, int64_t kv_head, int64_t row, const StepContext& step, const float* head);
void StoreV(const StageLayer& layer, int64_t kv_head, int64_t row, const StepContext& step, const float* head);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_KEY_PLACE_H_
