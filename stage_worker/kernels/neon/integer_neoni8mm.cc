// Integer matrix products for Arm processors with the 8-bit matrix instructions (FEAT_I8MM); single columns by sdot.

#include "stage_worker/kernels/neon/neon_integer.h"

namespace stagecoach {

void IntegerMatmulNeonI8mm(const PanelSpan& weights, const Activations& in, int columns, float* out,
                           int64_t out_stride) {
  IntegerMatmul(weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
