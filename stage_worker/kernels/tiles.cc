// The walks over tiles that the vectorised units share. Which tile an output lies in never changes its bits.

#include <algorithm>

#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

// Half of the smallest second-level cache in use; the other half is for activations.
constexpr int64_t kPanelGroupBytes = 256 << 10;
constexpr int64_t kPartColumns = 32;  // parts of K are multiples of it

// All columns, in even tiles (nine are five and four, not eight and one), times the `panels` panels at tile.panels of
// the part that `tile` describes.
void RunTiles(const MatmulTiles& tiles, int64_t panels, int columns, const MatmulTile& part) {
  const int column_tiles = (columns + tiles.max_columns - 1) / tiles.max_columns;
  for (int t = 0; t < column_tiles; ++t) {
    MatmulTile tile = part;
    tile.column = static_cast<int64_t>(columns) * t / column_tiles;
    tile.out += tile.column * part.out_stride;
    const int count = static_cast<int>(static_cast<int64_t>(columns) * (t + 1) / column_tiles - tile.column);
    for (int64_t left = panels; left > 0;) {
      const bool wide = left >= tiles.panels_wide[count];
      (wide ? tiles.wide : tiles.single)[count](tile);
      const int64_t done = wide ? tiles.panels_wide[count] : 1;
      tile.panels += done * tile.panel_bytes;
      tile.out += done * kPanelRows;
      left -= done;
    }
  }
}

// Where a panel's column begins.
int64_t ColumnBytes(const PanelSpan& weights) {
  return static_cast<int64_t>(GetTensorType(weights.type).block_bytes) * kPanelRows;
}

}  // namespace

void MatmulByTiles(const MatmulTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride) {
  const int64_t panel_bytes = static_cast<int64_t>(PanelBytes(weights.type, weights.cols));
  int64_t group = weights.panels, part = weights.cols;
  if (columns > tiles.max_columns) {
    const int64_t wide = tiles.panels_wide[tiles.max_columns];
    const int64_t parts = (wide * panel_bytes + kPanelGroupBytes - 1) / kPanelGroupBytes;
    part = (weights.cols / parts / kPartColumns + 1) * kPartColumns;
    group = std::max<int64_t>(1, kPanelGroupBytes / (wide * panel_bytes)) * wide;
  }
  for (int64_t first = 0; first < weights.panels; first += group) {
    for (int64_t begin = 0; begin < weights.cols; begin += part) {
      RunTiles(tiles, std::min(group, weights.panels - first), columns,
               {.panels = weights.data + first * panel_bytes + begin * ColumnBytes(weights),
                .panel_bytes = panel_bytes,
                .all_cols = weights.cols,
                .first = begin,
                .cols = std::min(part, weights.cols - begin),
                .in = &in,
                .out = out + first * kPanelRows,
                .out_stride = out_stride});
    }
  }
}

void MatmulByTiles(const FloatTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride) {
  if (columns <= tiles.few_columns || tiles.to_floats == nullptr) {
    const MatmulTiles& undecoded = columns <= tiles.few_columns ? tiles.stream : tiles.wide;
    return MatmulByTiles(undecoded, weights, in, columns, out, out_stride);
  }
  alignas(64) float floats[kMostDecodedFloats];
  const int64_t panel_bytes = static_cast<int64_t>(PanelBytes(weights.type, weights.cols));
  const int64_t group = tiles.wide.panels_wide[tiles.wide.max_columns];
  for (int64_t first = 0; first < weights.panels; first += group) {
    const int64_t panels = std::min(group, weights.panels - first);
    for (int64_t begin = 0; begin < weights.cols; begin += tiles.decoded) {
      const int64_t cols = std::min(tiles.decoded, weights.cols - begin);
      const uint8_t* const from = weights.data + first * panel_bytes + begin * ColumnBytes(weights);
      for (int64_t p = 0; p < panels; ++p)
        tiles.to_floats(from + p * panel_bytes, cols, floats + p * cols * kPanelRows);
      RunTiles(tiles.wide, panels, columns,
               {.panels = reinterpret_cast<const uint8_t*>(floats),
                .panel_bytes = cols * kVectorBytes,
                .all_cols = weights.cols,
                .first = begin,
                .cols = cols,
                .in = &in,
                .out = out + first * kPanelRows,
                .out_stride = out_stride});
    }
  }
}

void MatmulByTiles(const FloatTables& tables, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride) {
  const FloatTiles& of_type = weights.type == TensorType::kF32   ? tables.f32
                              : weights.type == TensorType::kF16 ? tables.f16
                                                                 : tables.bf16;
  MatmulByTiles(of_type, weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
