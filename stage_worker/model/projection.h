#ifndef STAGECOACH_STAGE_WORKER_MODEL_PROJECTION_H_
#define STAGECOACH_STAGE_WORKER_MODEL_PROJECTION_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/weights/packed_matrix.h"

namespace stagecoach {

// The columns of the output that a run of panels gives: [begin, end), without the padding rows.
inline Gang::Part OutputColumns(const PackedMatrix& matrix, Gang::Part panels) {
  return {std::min(panels.begin * kPanelRows, matrix.rows), std::min(panels.end * kPanelRows, matrix.rows)};
}

// out[row, o] = dot(matrix row 16 panels.begin + o, input row) (+ bias): `panels` only, whose first output is column 0.
// out: [rows, out_stride], with room for whole panels. bias: empty or [matrix.rows].
inline void Project(const Kernels& kernels, const PackedMatrix& matrix, const std::vector<float>& bias,
                    const Activations& input, int64_t rows, Gang::Part panels, float* out, int64_t out_stride) {
  if (panels.begin == panels.end) return;
  kernels.matmul(matrix.Panels(panels.begin, panels.end), input, static_cast<int>(rows), out, out_stride);
  if (bias.empty()) return;
  const Gang::Part columns = OutputColumns(matrix, panels);
  for (int64_t row = 0; row < rows; ++row) {
    kernels.add(bias.data() + columns.begin, columns.end - columns.begin, out + row * out_stride);
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_PROJECTION_H_
