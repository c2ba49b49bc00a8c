#include "stage_worker/weights/packed_matrix.h"

namespace stagecoach {
void PackedMatrix::UnpackRow(int64_t row, float* out) const {
  const uint8_t* panel = data + static_cast<size_t>(row / kPanelRows) * PanelBytes(type, cols);
  UnpackPanelRow(type, panel, cols, static_cast<int>(row % kPanelRows), out);
}

}  // namespace stagecoach
