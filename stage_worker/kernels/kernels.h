#ifndef STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_

// The arithmetic of a stage, behind one table of functions per instruction set. kernels/scalar.cc defines every
// function; the vectorised units give the same bits: one lane per output row and one fixed order of every reduction,
// explicit fused multiply-adds, our own exp and log. Nothing here allocates, locks or fails; arguments are trusted
// (validated at load).
//
// Weights are packed at load into panels of 16 output rows, in the order the dot instruction eats them. Rows beyond the
// matrix are zero. A panel of the types (K columns; one layout for all instruction sets):
//   F32          K x 16 float                   [k][lane]
//   F16, BF16    K/2 x 16 x 2 uint16            [k/2][lane][k%2]
//   Q8_0         K/32 blocks: 16 fp16 scales, then 8 groups x 16 rows x 4 uint8, each the file's int8 + 128
// Sizes: as in the file (row counts rounded up to 16).

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

inline constexpr int kPanelRows = 16;          // output rows of a panel = lanes
inline constexpr int kActivationGroup = 32;    // activations that share one scale
inline constexpr int kTilePositions = 16;      // positions of a K or V tile
inline constexpr int kAttentionGranule = 256;  // absolute positions whose softmax partials are merged in order

enum class KvType { kF32, kF16, kBF16 };
absl::StatusOr<KvType> ParseKvType(absl::string_view name);  // "f32", "f16", "bf16"
const char* KvTypeName(KvType type);
size_t KvTypeBytes(KvType type);

// How a matrix type wants its input: float rows, or rows quantised to int8.
enum class ActivationKind { kFloat, kInt8 };
ActivationKind ActivationKindFor(TensorType weights);

size_t PanelBytes(TensorType type, int64_t cols);

// Activations of `rows` input vectors. Float form: x. Int8 form: q = round_to_even(x / scale), scale = max|x| / 127
// over 32 (0, and all q 0, where that is no normal float), sum = the sum of the 32 q.
struct Activations {
  const float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  const int8_t* q = nullptr;      // [rows, cols]; 64-byte aligned rows are not required
  const float* scales = nullptr;  // [rows, cols / 32]
  const int32_t* sums = nullptr;  // [rows, cols / 32]
};

// A packed matrix, or a run of its panels.
struct PanelSpan {
  TensorType type = TensorType::kF32;
  const uint8_t* data = nullptr;  // 64-byte aligned
  int64_t panels = 0;
  int64_t cols = 0;  // K; a multiple of 32 for Q8_0, even for F16 and BF16
};

// K and V of up to kAttentionGranule consecutive absolute positions of one sequence and one KV head. A K tile is [H][16
// positions], a V tile is [16 positions][H], in the pool's type. Positions that were never written are never read as
// numbers: every column has a limit.
struct AttentionSpan {
  KvType type = KvType::kF16;
  int head_dim = 0;
  const uint8_t* const* k_tiles = nullptr;  // [ceil(positions / 16)]
  const uint8_t* const* v_tiles = nullptr;
  int positions = 0;  // most that any column sees
};

// The running result of a softmax-weighted sum. Start: max = -inf, sum = 0, acc = 0.
struct AttentionState {
  float* max;  // [columns]
  float* sum;  // [columns]
  float* acc;  // [columns, head_dim]
};

struct Kernels {
  const char* isa;  // "scalar", "avx2", "avx512-vnni"

  // Packs up to 16 rows of a file tensor (row_stride bytes apart) into one panel.
  void (*pack_panel)(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols,
                     uint8_t* panel);

  void (*quantize_row)(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* sums);

  // out[c * out_stride + 16 * p + lane] = dot(row 16 p + lane of the span, activation row c), for all panels p of the
  // span and c in [0, columns). The order of each sum: F32/F16/BF16: acc = fma(w[k], x[k], acc) for k ascending from 0.
  // Q8_0, per 32-block b ascending: s = exact integer sum of w * q; acc = fma(float(s), w_scale[b] * x_scale[b], acc).
  void (*matmul)(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride);

  // out = x * rsqrt(mean(x^2) + eps) * weight. The sum of squares runs in double over 16 lanes (element i in lane i %
  // 16, ascending), then lanes are added pairwise (0+8, 1+9, ..; then 4, 2, 1 apart); 1 / sqrt in double, then two
  // float products. In place is allowed.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);

  // out[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z)). In place is allowed.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] += in[i]
  void (*add)(const float* in, int64_t n, float* out);

  // Rotates one head in place. cos and sin: [head_dim / 2]. halves: pairs (i, i + H/2), else (2i, 2i + 1). The pair (a,
  // b) becomes fma(a, cos, -(b * sin)), fma(b, cos, a * sin).
  void (*rope)(float* head, const float* cos, const float* sin, int head_dim, bool halves);

  // Writes one position's K and V of one KV head into its tiles, at lane `position % 16`.
  void (*store_kv)(KvType type, const float* k, const float* v, int head_dim, int lane, uint8_t* k_tile,
                   uint8_t* v_tile);

  // Folds one granule into the running state, for `columns` queries [columns, q_stride] (already scaled by 1 /
  // sqrt(H)). Column c sees the first limits[c] positions of the span (0: none, its state is untouched). The order:
  // score = fma over H ascending; granule maximum; p = exp(score - granule maximum); granule sum: 16 lanes (position %
  // 16) ascending, then the pairwise tree; granule acc[d] = fma(p, v[d], acc[d]) over positions ascending; then merged
  // into the state with both factors exp(old max - new max), exp(granule max - new max): value = fma(value, old factor,
  // granule value * granule factor).
  void (*attend)(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* limits, int columns,
                 AttentionState state);

  // log(sum(exp(x - max))) + max, the sum in double over 16 lanes as in rms_norm. n >= 1; x finite or -inf.
  float (*log_sum_exp)(const float* x, int64_t n);
};

// The kernels of this name, or the best this machine has for "auto" or "". kInvalidArgument (with the list) for an
// unknown name, kFailedPrecondition when this CPU lacks it.
absl::StatusOr<const Kernels*> SelectKernels(absl::string_view isa);
std::string AvailableIsas();  // "scalar, avx2": of this machine, ascending

// Our own exp and log in float (Cephes-style polynomials, explicit fma): same bits everywhere. Exp(-inf) = 0.
float FixedExp(float x);
float FixedLog(float x);
// cos and sin of position * frequency and base^exponent in double, from +, -, *, / and fma alone.
void FixedSinCos(double angle, double* sin, double* cos);
double FixedPow(double base, double exponent);

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_KERNELS_H_
