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
PackFn PackPanel, PackPanelScalar;

// Scalar kernels that every table may use.
void RoundRow(const float* x, int64_t cols, uint16_t* out);
void RopeFrom(int first, float* head, const float* cos, const float* sin, int head_dim, bool halves);  // pairs

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

// Polynomials of the functions that every unit computes, the coefficient of the highest power first: e^x and tanh(x)
// for small x (Cephes' expf and tanhf), and 2^x (its exp2f).
constexpr float kExpPolynomial[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                    4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
constexpr float kTanhPolynomial[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                                     -3.33332819422e-1f};
constexpr float kExp2Polynomial[] = {1.535336188319500e-4f,
                                     1.339887440266574e-3f,
                                     9.618437357674640e-3f,
                                     5.550332471162809e-2f,
                                     2.402264791363012e-1f,
                                     6.931472028550421e-1f,
                                     1.0f};

// ((c_0 x + c_1) x + ..) by fused multiply-adds.
template <int kCount>
static inline float Polynomial(const float (&coefficients)[kCount], float x) {
  float y = coefficients[0];
#pragma GCC unroll 8
  for (int i = 1; i < kCount; ++i) y = __builtin_fmaf(y, x, coefficients[i]);
  return y;
}

// Adding and subtracting 1.5 * 2^23 rounds a float to the nearest integer, ties to even, which is then in the low bits.
constexpr float kRoundFloat = 12582912.0f;

// -128 * sum, also of what conversions make of numbers that are not finite.
static inline int32_t StartOf(int32_t sum) { return static_cast<int32_t>(0u - (static_cast<uint32_t>(sum) << 7)); }

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

// The tiles of the float types.
struct FloatTiles {
  MatmulTiles f32, f16, bf16;
};

// A matmul by tiles, of a float type. The panels go in groups, and long ones in parts, that stay in the second-level
// cache while all columns pass by.
void MatmulByTiles(const FloatTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);
void MatmulByTiles(const MatmulTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_
