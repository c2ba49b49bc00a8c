#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_PACKED_MATRIX_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>

#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// A matrix [rows, cols] in panels of 16 rows (kernels.h); the rows that fill up the last panel are zero. Owns nothing.
struct PackedMatrix {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs
  const uint8_t* data = nullptr;

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t padded_rows() const { return panels() * kPanelRows; }
  size_t bytes() const { return static_cast<size_t>(panels()) * PanelBytes(type, cols); }

  // Panels [begin, end): output rows [16 begin, 16 end).
  PanelSpan Panels(int64_t begin, int64_t end) const {
    return {type, data + static_cast<size_t>(begin) * PanelBytes(type, cols), end - begin, cols};
  }

  // Decodes one row to float [cols], with the same values as DequantizeRow of the file's bytes. This is how an
  // embedding is looked up, so that a tied matrix is held once.
  void UnpackRow(int64_t row, float* out) const {
    const uint8_t* panel = data + static_cast<size_t>(row / kPanelRows) * PanelBytes(type, cols);
    UnpackPanelRow(type, panel, cols, static_cast<int>(row % kPanelRows), out);
  }
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_PACKED_MATRIX_H_
