// Integer matrix products for Arm processors with the dot product instructions (Armv8.2 and later).

#include "stage_worker/kernels/neon/neon_integer.h"

namespace stagecoach {

void IntegerMatmulNeon(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  IntegerMatmul(weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
