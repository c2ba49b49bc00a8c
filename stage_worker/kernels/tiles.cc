// The walks over tiles that the vectorised units share. Which tile an output lies in never changes its bits.

#include <algorithm>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// Half of the smallest second-level cache in use; the other half is for activations.
constexpr int64_t kPanelGroupBytes = 256 << 10;
constexpr int64_t kPartColumns = 32;  // parts of K are multiples of it

}  // namespace

void MatmulByTiles(const MatmulTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride) {
  const int64_t panel_bytes = static_cast<int64_t>(PanelBytes(weights.type, weights.cols));
  const int64_t column_bytes = static_cast<int64_t>(GetTensorType(weights.type).block_bytes) * kPanelRows;
  const int column_tiles = (columns + tiles.max_columns - 1) / tiles.max_columns;
  int64_t group = weights.panels, part = weights.cols;
  if (column_tiles > 1) {
    const int64_t wide = tiles.panels_wide[tiles.max_columns];
    const int64_t parts = (wide * panel_bytes + kPanelGroupBytes - 1) / kPanelGroupBytes;
    part = (weights.cols / parts / kPartColumns + 1) * kPartColumns;
    group = std::max<int64_t>(1, kPanelGroupBytes / (wide * panel_bytes)) * wide;
  }
  for (int64_t first = 0; first < weights.panels; first += group) {
    const int64_t last = std::min(weights.panels, first + group);
    for (int64_t begin = 0; begin < weights.cols; begin += part) {
      for (int t = 0; t < column_tiles; ++t) {
        // Even tiles: nine columns are five and four, not eight and one.
        const int column = static_cast<int>(static_cast<int64_t>(columns) * t / column_tiles);
        const int count = static_cast<int>(static_cast<int64_t>(columns) * (t + 1) / column_tiles) - column;
        for (int64_t p = first; p < last;) {
          const bool wide = last - p >= tiles.panels_wide[count];
          const MatmulTile tile = {.panels = weights.data + p * panel_bytes + begin * column_bytes,
                                   .panel_bytes = panel_bytes,
                                   .all_cols = weights.cols,
                                   .first = begin,
                                   .cols = std::min(part, weights.cols - begin),
                                   .in = &in,
                                   .column = column,
                                   .out = out + column * out_stride + p * kPanelRows,
                                   .out_stride = out_stride};
          (wide ? tiles.wide : tiles.single)[count](tile);
          p += wide ? tiles.panels_wide[count] : 1;
        }
      }
    }
  }
}

void MatmulByTiles(const FloatTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride) {
  const MatmulTiles& of_type = weights.type == TensorType::kF32   ? tiles.f32
                               : weights.type == TensorType::kF16 ? tiles.f16
                                                                  : tiles.bf16;
  MatmulByTiles(of_type, weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
