#ifndef STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_

// What the instruction-set units of this directory give to select.cc, and what they share. Everything shared is
// compiled once, for the baseline: an inline function here would be compiled with each unit's flags and the linker
// would keep any one of the copies, perhaps one that the machine cannot run. For the same reason the units call no
// inline library functions.

#include <cstdint>
#include <vector>

#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;
extern const Kernels kAvx512Bf16Kernels;
extern const Kernels kNeonKernels;
extern const Kernels kNeonI8mmKernels;

// The instruction sets of this family of processors, ascending: the last one available is the best.
struct Isa {
  const Kernels* kernels;
  bool available;  // on this machine
};
std::vector<Isa> ListIsas();

// The pack_panel of every table, and its scalar twin: one layout for all instruction sets.
void PackPanel(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols, uint8_t* panel);
void PackPanelScalar(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols,
                     uint8_t* panel);

// Scalar kernels that every table may use.
void RoundRow(const float* x, int64_t cols, uint16_t* out);

// A block of 32 columns of one lane: codes without their bias, and scale and minimum of each half (the same for both
// where groups have 32 columns; no minima: untouched).
struct UnpackedBlock {
  int32_t codes[kCodeBlock];
  float scales[2];
  float minima[2];
};
void UnpackBlock(const IntegerLayout& layout, const PanelSections& sections, const uint8_t* panel, int64_t block,
                 int lane, UnpackedBlock* out);

// One weight of a panel of a float type.
float PanelFloat(TensorType type, const uint8_t* panel, int64_t column, int lane);

// The pairwise tree over 16 lanes: 0+8, 1+9, ..; then 4, 2 and 1 apart.
float TreeSum(const float lanes[16]);
double TreeSum(const double lanes[16]);

// The common ends of rms_norm, 1 / sqrt(mean + eps) from the lanes of the sum of squares, and of log_sum_exp, log(sum)
// + max.
float RmsFactor(const double lanes[16], int64_t n, float eps);
float LogOfLanes(const double lanes[16], float max);

inline constexpr int kMaxTileColumns = 8;

// One tile of a matrix product: as many activation rows from `column` on as the function is made for, times one
// or more panels that lie behind each other; of K a part.
struct MatmulTile {
  const uint8_t* panels;  // at the part's first column
  int64_t panel_bytes;    // from panel to panel
  int64_t all_cols;       // K
  int64_t first, cols;    // the part; the sums so far are in `out` unless `first` is 0
  const Activations* in;
  int64_t column;
  float* out;  // of the first panel and column
  int64_t out_stride;
};
using MatmulTileFn = void (*)(const MatmulTile& tile);

// The tiles of one weight type, by number of columns 1 .. max_columns (entry 0 is unused): `wide` takes
// panels_wide[columns] panels at once, `single` one.
struct MatmulTiles {
  int max_columns;
  int panels_wide[kMaxTileColumns + 1];
  MatmulTileFn wide[kMaxTileColumns + 1];
  MatmulTileFn single[kMaxTileColumns + 1];
};

// A matmul by tiles, of a float type. The panels go in groups, and long ones in parts, that stay in the second-level
// cache while all columns pass by.
void MatmulByTiles(const MatmulTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_
