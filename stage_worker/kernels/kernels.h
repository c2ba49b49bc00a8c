#ifndef STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_

// The arithmetic of a stage: one table of functions per instruction set. The scalar units define every function. The
// vectorised units give the same bits: one lane per output row, one fixed order of every reduction, explicit fused
// multiply-adds, our own exp and log. Nothing here allocates, locks or fails; arguments are trusted (validated at
// load).
//
// Weights are packed at load into panels of 16 output rows, in the order of the dot instruction (panel_layout.h). Sizes
// are those of the file to within 8 % (row counts rounded up to 16).
//
// Every unit of kernels reads this header, so it includes little; select.h chooses a table.

#include <cstddef>
#include <cstdint>

#include "common/job/kv_type.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

inline constexpr int kTilePositions = 16;  // positions of a K or V tile

// Bytes of a K or V tile of kTilePositions positions. F32, F16, BF16: K is [H][16 positions], V is [16 positions][H].
// Q8_0 (H a multiple of kKvGroup): [H/32][16 positions] float scales first, then int8 codes in the same order.
size_t KvTileBytes(KvType type, int64_t head_dim);

size_t PanelBytes(TensorType type, int64_t cols);  // a multiple of 64

// Decodes one row of a panel to float [cols], with the same values as DequantizeRow of the file's bytes.
void UnpackPanelRow(TensorType type, const uint8_t* panel, int64_t cols, int lane, float* out);

// Activations of `rows` input vectors. Float form: x. Int8 form: q = round_to_even(x / scale), scale = max|x| / 127
// over 32 (0, and all q 0, where that is no normal float); starts and half_starts = -128 * the sum of the 32 (16) q,
// where the accumulator of weights that carry a bias of 128 starts. Bfloat16 form: x rounded to nearest even.
struct Activations {
  const float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  const int8_t* q = nullptr;             // [rows, cols]; 64-byte aligned rows are not required
  const float* scales = nullptr;         // [rows, cols / 32]
  const int32_t* starts = nullptr;       // [rows, cols / 32]
  const int32_t* half_starts = nullptr;  // [rows, cols / 16]
  const uint16_t* bf16 = nullptr;        // [rows, cols]
};

// A packed matrix, or a run of its panels.
struct PanelSpan {
  TensorType type = TensorType::kF32;
  const uint8_t* data = nullptr;  // 64-byte aligned
  int64_t panels = 0;
  int64_t cols = 0;  // K; a multiple of the type's block, even for F16 and BF16
  // The panels that this thread probably reads next, or nullptr: prefetched by the kernels that gain from it, those of
  // the integer types, in runs of less than a tenth of a megabyte.
  const uint8_t* next = nullptr;
};

// K and V of up to kAttentionGranule consecutive absolute positions of one sequence and one KV head. A K tile is
// [head_dim][16 positions], a V tile [16 positions][value_dim], in the pool's type. Every column has a begin and a
// limit, so positions that were never written, or belong to others by now, are never used. Tiles without a position
// between the smallest begin and the largest limit are not even looked up.
struct AttentionSpan {
  KvType type = KvType::kF16;
  int head_dim = 0;   // of K and q
  int value_dim = 0;  // of V and acc: head_dim but for latent attention, whose K is wider than its V
  const uint8_t* const* k_tiles = nullptr;  // [ceil(positions / 16)]
  const uint8_t* const* v_tiles = nullptr;
  int positions = 0;  // the largest limit
  // K tiles to prefetch, as many as k_tiles (some may repeat), or nullptr: the processor cannot foresee where the next
  // tile lies.
  const uint8_t* const* next_k_tiles = nullptr;
  float score_cap = 0.0f;  // > 0: scores become cap * tanh(score / cap), as soft_cap does it; 0: they stay
};

// The running result of a softmax-weighted sum. Start: max = -inf, sum = 0, acc = 0.
struct AttentionState {
  float* max;  // [columns]
  float* sum;  // [columns]
  float* acc;  // [columns, value_dim]
};

// Consecutive rows of one head of a gated delta net (DeltaNetSpec), after a sequence's state S [dim keys][dim values].
// S lies in panels of kTileValues values, the last one as narrow as what is left: [panel][key][value of the panel], so
// that its dim * dim floats are read and written once and in order.
struct DeltaSpan {
  int64_t dim = 0;               // d
  int64_t rows = 0;              // at least 1
  const float* q = nullptr;      // [rows, dim], as k and v: normalised and scaled
  const float* k = nullptr;      // [rows, dim]
  const float* v = nullptr;      // [rows, dim]
  const float* decay = nullptr;  // e^g of row i at [i * gate_stride]
  const float* beta = nullptr;   // sigmoid(b), alike
  int64_t gate_stride = 1;
  const float* before = nullptr;  // S before the first row; nullptr: zeros
  float* after = nullptr;         // S behind the last row; may be `before`, else does not overlap it
  float* out = nullptr;           // o: [rows, out_stride]
  int64_t out_stride = 0;
};
inline constexpr int64_t kTileValues = 16;

struct SamplingKernels;

// Function types of the table.
using PackFn = void(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols,
                    uint8_t* panel);
using MatmulFn = void(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);
using StoreFn = void(KvType type, const float* head, int dims, int lane, uint8_t* tile);
using AttendFn = void(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins,
                      const int32_t* limits, int columns, AttentionState state);
using MergeFn = void(const AttentionState& granule, int columns, int value_dim, AttentionState state);
using DeltaFn = void(const DeltaSpan& span);

struct Kernels {
  const char* isa;  // InstructionSetName of one of them

  // Whether BF16 matrices multiply bfloat16 activations (a dot instruction of pairs) instead of float ones.
  bool bf16_dot;

  // Packs up to 16 rows of a file tensor (row_stride bytes apart) into one panel.
  PackFn* pack_panel;

  // x [cols] to the int8 form of Activations; cols is a multiple of 32, x is finite (a group with other values holds
  // any numbers). A part of a row gives that part of the output, so threads can share a row at multiples of 32.
  void (*quantize_row)(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts);

  // x [cols] rounded to bfloat16, to nearest even; every NaN becomes a quiet one.
  void (*round_row)(const float* x, int64_t cols, uint16_t* out);

  // out[c * out_stride + 16 * p + lane] = dot(row 16 p + lane of the span, activation row c), for all panels p of the
  // span and c in [0, columns). The order of each sum:
  //   F32, F16, BF16       acc = fma(w[k], x[k], acc) for k ascending from 0
  //   BF16 with bf16_dot   pairs of k ascending, as the instruction adds them; differs from the above by at most
  //                        columns * 2^-23 * sum |w x| + columns * 2^-126 (two orders of additions, each with a
  //                        rounding; the instruction reads subnormal numbers as zero)
  //   integer types        per block of 32 columns ascending; with minima first, for each group g of the block,
  //                        acc = fma(min[g], float(sum of q in g) * x_scale, acc); then for each group
  //                        acc = fma(float(s), w_scale[g] * x_scale, acc), s = exact integer sum of code * q
  // A group is the block, or each 16 of it for Q2_K, Q3_K and Q6_K. Codes, scales and minima: panel_layout.h.
  MatmulFn* matmul;

  // out = x * rsqrt(mean(x^2) + eps) * weight. The sum of squares runs in double over 16 lanes (element i in lane i %
  // 16, ascending), then lanes are added pairwise (0+8, 1+9, ..; then 4, 2, 1 apart); 1 / sqrt in double, then two
  // float products. In place is allowed.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);

  // out[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z)). In place is allowed.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] = gelu(gate[i]) * up[i], gelu(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 z^3))), computed as m / (1
  // + exp(-(m * fma(kGeluCubic, m * m, kGeluLinear)))) with m = max(z, -12): below that it is 0 in float. In place is
  // allowed. Here and in clamped_swiglu: a NaN in an element gives a NaN, of unspecified bits, in that element alone.
  void (*geglu)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] = g / (1 + exp(-(alpha * g))) * (u + 1), g = min(gate[i], limit), u = up[i] kept within -limit and limit,
  // which is >= 0. In place is allowed.
  void (*clamped_swiglu)(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out);

  // x[i] = cap * FixedTanh(x[i] / cap), of cap > 0: within 5 units of the last place of the exact value where x[i] /
  // cap is a normal float (a small x too: it keeps its relative precision), and nowhere beyond the cap. A NaN in an
  // element gives a NaN, of unspecified bits, in that element alone.
  void (*soft_cap)(float cap, int64_t n, float* x);

  // out[i] += in[i]
  void (*add)(const float* in, int64_t n, float* out);

  // out[i] = fma(in[i], scale, out[i])
  void (*add_scaled)(const float* in, float scale, int64_t n, float* out);

  // Rotates one head in place. cos and sin: [head_dim / 2]. halves: pairs (i, i + H/2), else (2i, 2i + 1). The pair (a,
  // b) becomes fma(a, cos, -(b * sin)), fma(b, cos, a * sin).
  void (*rope)(float* head, const float* cos, const float* sin, int head_dim, bool halves);

  // Writes one position's K or V of one KV head into its tile, at lane `position % 16`. Q8_0: per 32 dimensions, scale
  // = max|x| / 127 (0, and all codes 0, where that is no normal float), code = round_to_even(x / scale).
  StoreFn* store_k;
  StoreFn* store_v;

  // Folds one granule into the running state, for `columns` queries [columns, q_stride] (already scaled, by 1 / sqrt(H)
  // or as the model wants it). Column c sees the positions [begins[c], limits[c]) of the span (none: its state is
  // untouched); begins nullptr: all 0. What a column does not see never touches its numbers, whatever lies there and
  // whatever the columns beside it see. The order:
  // score = fma(k[d], q[d], score) over d ascending; Q8_0: per 32 dimensions part = fma(float(code), q[d], part) from
  // 0, then score = fma(scale, part, score); with a cap, score = cap * FixedTanh(score / cap). Granule maximum of what
  // the column sees; p = exp(score - granule maximum); granule sum: 16 lanes (position % 16) ascending, then the
  // pairwise tree; granule acc[d] = fma(p, v[d], acc[d]) over the positions that it sees ascending, Q8_0: fma(p *
  // scale, float(code), acc[d]), at the end + 0 (no negative zero); then merged into the state as merge_attention does.
  // Where all scores are -inf the state is untouched.
  AttendFn* attend;

  // Merges a later granule, itself a state that started from nothing, into the running state: with m = max(old max,
  // granule max) and the factors exp(old max - m) and exp(granule max - m), value = fma(value, old factor, granule
  // value * granule factor) for the sum and every acc. A granule that saw nothing (max -inf) changes nothing. Folding a
  // granule with attend gives the same bits as attending it from nothing and merging it.
  MergeFn* merge_attention;

  // The step form of the gated delta rule, row after row; with key i and value j of S, all in float:
  //   dot = sum of S[i][j] * k[i];  b = beta * fma(-decay, dot, v[j])
  //   S[i][j] = fma(k[i], b, decay * S[i][j]);  o[j] = sum of S[i][j] * q[i]
  // A sum over the keys is four: key i belongs to sum i % 4, which is fma(S, factor, sum) from 0 over its keys
  // ascending; then (sum 0 + sum 2) + (sum 1 + sum 3). So how many rows a call has changes no bit.
  DeltaFn* delta_rule;

  // out[i] = silu(y), y = weights[i] * x[0][i], then fma(weights[t * weight_stride + i], x[t][i], y) for t in [1,
  // taps): a causal convolution of every channel, x[taps - 1] of the current row. `out` may be one of the x.
  void (*conv_silu)(const float* const* x, const float* weights, int64_t weight_stride, int taps, int64_t n,
                    float* out);

  // out = x * (scale / max(norm of x, eps)), the quotient rounded to float; the sum of squares as in rms_norm. In place
  // is allowed.
  void (*l2_norm)(const float* x, int64_t n, float eps, float scale, float* out);

  // x[i] = x[i] / (1 + exp(-gate[i]))
  void (*times_sigmoid)(const float* gate, int64_t n, float* x);

  // The sum of a[i] * b[i]: 16 lanes of fma(a, b, lane) (element i in lane i % 16, ascending), then the pairwise tree.
  float (*dot)(const float* a, const float* b, int64_t n);

  // log(sum(exp(x - max))) + max; the sum in double over 16 lanes as in rms_norm. n >= 1; x finite or -inf.
  float (*log_sum_exp)(const float* x, int64_t n);

  const SamplingKernels* sampling;  // of whole rows of logits: sampling.h
};

// The input that a matrix of this type takes from these kernels.
ActivationKind ActivationKindFor(const Kernels& kernels, TensorType weights);

// geglu's constants: 2 sqrt(2 / pi), and 0.044715 of it. tanh's argument twice, since (1 + tanh(y)) / 2 = 1 / (1 +
// exp(-2 y)).
inline constexpr float kGeluLinear = 1.5957691216057308f;
inline constexpr float kGeluCubic = 0.07135481627f;
inline constexpr float kGeluLeast = -12.0f;  // where the function is 0 in float

// Our own exp and log in float (Cephes-style polynomials, explicit fma): same bits everywhere. Exp(-inf) = 0.
float FixedExp(float x);
float FixedLog(float x);
// From FixedExp, within 3 units of the last place (the sigmoid where it is a normal float); a NaN stays one.
float FixedTanh(float x);
float FixedSigmoid(float x);  // 1 / (1 + exp(-x))
// log(1 + exp(x)) in double, then rounded.
float FixedSoftplus(float x);
// cos and sin of position * frequency and base^exponent in double, from +, -, *, / and fma alone.
void FixedSinCos(double angle, double* sin, double* cos);
double FixedPow(double base, double exponent);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_
