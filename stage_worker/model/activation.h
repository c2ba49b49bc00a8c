#ifndef STAGECOACH_STAGE_WORKER_MODEL_ACTIVATION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_ACTIVATION_H_

#include <cstdint>

#include "common/model/layer_spec.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// out[i] = the unit's activation of gate[i] and up[i]. In place is allowed.
void ApplyActivation(const Kernels& kernels, Activation activation, const float* gate, const float* up, int64_t n,
                     float* out);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_ACTIVATION_H_
