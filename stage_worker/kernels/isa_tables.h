#ifndef STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_

// What the instruction-set units export to select.cc, and what they share. Shared code is compiled once, for the
// baseline. Every unit would compile its own copy of an inline function with its own flags, and the linker might keep
// one that the machine cannot run. For the same reason units call no inline library functions.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
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

// What every table may use for its last pairs.
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

// -128 * sum, modulo 2^32: conversions of numbers that are not finite give any sum.
static inline int32_t StartOf(int32_t sum) { return static_cast<int32_t>(0u - (static_cast<uint32_t>(sum) << 7)); }

// The last steps of rms_norm, 1 / sqrt(mean + eps) from the lanes of the sum of squares, and of log_sum_exp, log(sum) +
// max.
float RmsFactor(const double lanes[16], int64_t n, float eps);
float LogOfLanes(const double lanes[16], float max);
// The factor of l2_norm.
float L2Factor(const double lanes[16], float eps, float scale);

inline constexpr int kMaxTileColumns = 8;

// One tile of a matrix product, over a part of K: activation rows from `column` on, as many as the function is made
// for, times one or more consecutive panels.
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

// The tiles of a float type: `stream` for up to few_columns, which are bound by reading the weights, `wide` for more.
// With to_floats, `wide` are tiles of F32: `decoded` columns of as many panels as they take at once become floats in a
// cache, [cols][kPanelRows] for each panel, once for all columns.
inline constexpr int64_t kMostDecodedFloats = 8 << 10;
struct FloatTiles {
  int few_columns;
  MatmulTiles stream, wide;
  void (*to_floats)(const uint8_t* panel, int64_t cols, float* out) = nullptr;
  int64_t decoded = 0;
};
struct FloatTables {
  FloatTiles f32, f16, bf16;
};
extern const FloatTables kFloatTilesAvx2, kFloatTilesAvx512, kFloatTilesNeon;
extern const FloatTiles kBf16TilesAvx512Bf16;  // by the dot instruction of pairs

// A matmul by tiles. Works on groups of panels (parts of long ones) that stay in a cache for all columns.
void MatmulByTiles(const MatmulTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);
void MatmulByTiles(const FloatTiles& tiles, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);
void MatmulByTiles(const FloatTables& tables, const PanelSpan& weights, const Activations& in, int columns, float* out,
                   int64_t out_stride);

// --- attention ---

// The attention functions of the scalar table.
StoreFn StoreKScalar, StoreVScalar;
AttendFn AttendScalar;
MergeFn MergeAttentionScalar;

template <KvType kType>
inline constexpr int64_t kKvBytes = kType == KvType::kF32    ? 4
                                    : kType == KvType::kQ8_0 ? 1
                                                             : 2;  // of an element

// Where the elements begin in a tile: behind the scales of Q8_0, kKvScaleBytes for each group of dimensions.
inline constexpr int64_t kKvScaleBytes = kTilePositions * 4;
static inline constexpr int64_t KvCodesOffset(KvType type, int64_t dims) {
  return type == KvType::kQ8_0 ? dims / kKvGroup * kKvScaleBytes : 0;
}

// One tile of attend: columns that see at least one position each.
inline constexpr int kMaxAttendColumns = 8;
struct AttendTile {
  const AttentionSpan* span;  // next_k_tiles is set
  const float* q[kMaxAttendColumns];
  int32_t begins[kMaxAttendColumns];  // each below its limit
  int32_t limits[kMaxAttendColumns];
  int32_t begin, limit;  // the smallest and the largest of them
  float* max[kMaxAttendColumns];
  float* sum[kMaxAttendColumns];
  float* acc[kMaxAttendColumns];
};
using AttendTileFn = void (*)(const AttendTile& tile);

// The tiles of one KV type, by number of columns 1 .. max_columns.
struct AttendTiles {
  int max_columns;
  AttendTileFn tile[kMaxAttendColumns + 1];
  AttendTileFn again;  // of max_columns, for K and V that an earlier tile has read: does not prefetch
};

// By type.
struct AttendTables {
  AttendTiles f32, f16, bf16, q8_0;
};
extern const AttendTables kAttendTilesAvx2, kAttendTilesAvx512, kAttendTilesNeon;

// An attend by tiles; skips columns that see nothing.
void AttendByTiles(const AttendTables& tables, const AttentionSpan& span, const float* q, int64_t q_stride,
                   const int32_t* begins, const int32_t* limits, int columns, AttentionState state);

// The positions that the columns of a tile add up together, sharing loads of V: [begin, end), those that all columns
// see. Each column adds its positions before `begin` first and those from `end` on last, alone: no column multiplies
// what it does not see.
struct SharedPositions {
  int begin, end;
};
static inline SharedPositions SharedBy(const int* begins, const int* limits, int columns) {
  SharedPositions shared = {begins[0], limits[0]};
  for (int c = 1; c < columns; ++c) {
    shared.begin = begins[c] > shared.begin ? begins[c] : shared.begin;
    shared.end = limits[c] < shared.end ? limits[c] : shared.end;
  }
  shared.end = shared.end > shared.begin ? shared.end : shared.begin;
  return shared;
}

// The merge of a granule into a column's running state: sets *max and *sum, and gives the factors that acc takes
// (acc = fma(acc, old_factor, granule_acc * new_factor)).
struct MergeFactors {
  float old_factor, new_factor;
};
MergeFactors MergeGranule(float granule_max, float granule_sum, float* max, float* sum);

// --- the gated delta rule ---

DeltaFn DeltaRuleScalar;
// A panel of S, its first value and how many it has: what remains beside the whole panels of a vectorised unit.
void DeltaPanelScalar(const DeltaSpan& span, int64_t value, int64_t values);

inline constexpr int kDeltaSums = 4;  // of a sum over the keys

// --- measuring ---

// How a thread reads: as so many streams (1, 2 or 4), equal parts of the memory by turns of 256 bytes; and with a
// prefetch so many bytes ahead in each, 0: none, which leaves that to the hardware.
struct ReadPattern {
  int streams = 1;
  int ahead = 0;
};
// What the fastest pattern depends on is the processor: its prefetchers, and how many misses it has under way.
inline constexpr ReadPattern kReadPatterns[] = {{1, 0}, {2, 0}, {4, 0}, {1, 2048}, {2, 2048}, {4, 1024}};

// The ceilings of an instruction set, as loops to time: reading memory, and multiply-adds in registers. Thread-safe.
struct PeakLoops {
  // Adds up `bytes` bytes, a multiple of 256, from a 64-byte aligned address, in 64-bit words; as fast as one thread
  // can read them in this pattern.
  uint64_t (*read)(const uint8_t* data, size_t bytes, const ReadPattern& pattern);

  // Each runs `rounds` rounds of independent multiply-adds and returns how many operations that were; a multiply-add of
  // one element is two. int8: products of bytes added to 32-bit sums, in as many instructions as the set needs for it.
  // nullptr if these kernels have no such instruction, or no loop is written yet (Arm).
  double (*int8_dot)(int64_t rounds);
  double (*bf16_dot)(int64_t rounds);
  double (*f32_fma)(int64_t rounds);
};

// The loops that bound these kernels. Sets without loops of their own get a plain one that reads.
const PeakLoops& PeakLoopsOf(const Kernels& kernels);

// The loops of the units.
uint64_t PeakReadAvx2(const uint8_t* data, size_t bytes, const ReadPattern& pattern);
double PeakInt8Avx2(int64_t rounds);
double PeakF32Avx2(int64_t rounds);
double PeakInt8AvxVnni(int64_t rounds);
uint64_t PeakReadAvx512(const uint8_t* data, size_t bytes, const ReadPattern& pattern);
double PeakInt8Avx512(int64_t rounds);
double PeakF32Avx512(int64_t rounds);
double PeakInt8Avx512Vnni(int64_t rounds);
double PeakBf16Avx512Bf16(int64_t rounds);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_ISA_TABLES_H_
