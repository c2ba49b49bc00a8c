#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ROWS_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ROWS_H_

// The functions over single rows of the vectorised tables (kernels.h), written with vector_math.h's vectors. Included
// by kernels_avx2.cc, kernels_avx512.cc and kernels_neon.cc, behind the header of their instruction set.

#include <cfloat>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/sampling.h"
#include "stage_worker/kernels/vector_delta.h"

namespace stagecoach {
namespace {

// What the unit defines.
inline Doubles ToDoubles(const float* x);
inline Doubles Low(Floats x);  // half of the lanes
inline Doubles High(Floats x);
inline Doubles AddSquare(Doubles sum, Doubles x);  // fused
inline void StoreDoubles(double* p, Doubles x);
inline void RotatePairs(float* head, const float* cos, const float* sin);  // kRotatedPairs pairs (2i, 2i + 1)
inline Ints LowBytes(Ints x);                                              // the low byte of every lane, with its sign
inline int32_t SumOfHalf(const Ints* half);                                // of kActivationGroup / 2 integers
inline void StoreBytes(int8_t* p, const Ints* values);                     // kActivationGroup integers of a byte each

constexpr int kRotatedPairs = kLanes > 8 ? 8 : 4;
constexpr int kDoubleLanes = kLanes / 2;
constexpr int kSumLanes = 16;  // lanes of every sum over a row
constexpr int kSumVectors = kSumLanes / kDoubleLanes;

// A group of 32 as its scale, which is returned, and integers: quantize_row for any x, as the scalar kernel does it.
inline float QuantizeGroup(const float* x, Ints* values) {
  constexpr int kVectors = kActivationGroup / kLanes;
  Floats largest = Set(0.0f);
  for (int v = 0; v < kVectors; ++v) largest = MaxNumber(Magnitude(Load(x + v * kLanes)), largest);
  const float quotient = ReduceMax(largest) / 127.0f;
  const float scale = quotient < FLT_MIN ? 0.0f : quotient;
  for (int v = 0; v < kVectors; ++v) {
    values[v] = scale == 0.0f ? Ints{} : LowBytes(Bits(Load(x + v * kLanes) / Set(scale) + Set(kRoundFloat)));
  }
  return scale;
}

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    Ints values[kActivationGroup / kLanes];
    scales[b] = QuantizeGroup(x + b * kActivationGroup, values);
    StoreBytes(q + b * kActivationGroup, values);
    half_starts[2 * b] = StartOf(SumOfHalf(values));
    half_starts[2 * b + 1] = StartOf(SumOfHalf(values + kActivationGroup / 2 / kLanes));
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
  }
}

void RoundToBf16(const float* x, int64_t cols, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) StoreBf16(reinterpret_cast<uint8_t*>(out + i), Load(x + i));
  kScalarKernels.round_row(x + i, cols - i, out + i);
}

// One head's K or V at a lane of a tile: K's elements lie kTilePositions apart, V's side by side.
template <KvType kType, bool kKeys>
void StoreHeadAs(const float* x, int dims, int lane, uint8_t* tile) {
  constexpr int64_t kSize = kKvBytes<kType>;
  constexpr int kCount = kType == KvType::kQ8_0 ? kKvGroup : kLanes;
  uint8_t* const elements = tile + KvCodesOffset(kType, dims);
  for (int d = 0; d < dims; d += kCount) {
    alignas(Floats) uint8_t some[kCount * kSize];
    if constexpr (kType == KvType::kQ8_0) {
      Ints values[kKvGroup / kLanes];
      const float scale = QuantizeGroup(x + d, values);
      std::memcpy(tile + d / kKvGroup * kKvScaleBytes + lane * 4, &scale, sizeof(scale));
      StoreBytes(reinterpret_cast<int8_t*>(some), values);
    } else {
      const Floats values = dims - d >= kLanes ? Load(x + d) : LoadFirstFloats(x + d, dims - d);
      if constexpr (kType == KvType::kF32) Store(some, values);
      if constexpr (kType == KvType::kF16) StoreHalves(some, values);
      if constexpr (kType == KvType::kBF16) StoreBf16(some, values);
    }
    const int count = dims - d < kCount ? dims - d : kCount;
    if constexpr (kKeys) {
      uint8_t* const column = elements + (int64_t{d} * kTilePositions + lane) * kSize;
      for (int i = 0; i < count; ++i) std::memcpy(column + i * kTilePositions * kSize, some + i * kSize, kSize);
    } else {
      uint8_t* const row = elements + (int64_t{lane} * dims + d) * kSize;
      count == kCount ? std::memcpy(row, some, sizeof(some)) : std::memcpy(row, some, count * kSize);
    }
  }
}

template <bool kKeys>
void StoreHead(KvType type, const float* x, int dims, int lane, uint8_t* tile) {
  switch (type) {
    case KvType::kF32: return StoreHeadAs<KvType::kF32, kKeys>(x, dims, lane, tile);
    case KvType::kF16: return StoreHeadAs<KvType::kF16, kKeys>(x, dims, lane, tile);
    case KvType::kBF16: return StoreHeadAs<KvType::kBF16, kKeys>(x, dims, lane, tile);
    case KvType::kQ8_0: return StoreHeadAs<KvType::kQ8_0, kKeys>(x, dims, lane, tile);
  }
}

inline void SumSquares(const float* x, int64_t n, double* lanes) {
  Doubles sums[kSumVectors] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    // The square of a float is exact in double, so a fused addition rounds the same as a separate one.
    for (int j = 0; j < kSumVectors; ++j) sums[j] = AddSquare(sums[j], ToDoubles(x + i + j * kDoubleLanes));
  }
  for (int j = 0; j < kSumVectors; ++j) StoreDoubles(lanes + j * kDoubleLanes, sums[j]);
  for (int lane = 0; i + lane < n; ++lane)
    lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  double lanes[kSumLanes];
  SumSquares(x, n, lanes);
  const float factor = RmsFactor(lanes, n, eps);
  for (int64_t j = 0; j < n; ++j) out[j] = x[j] * factor * weight[j];
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats z = Load(gate + i);
    Store(out + i, TimesSigmoid(z, z) * Load(up + i));
  }
  kScalarKernels.swiglu(gate + i, up + i, n - i, out + i);
}

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats m = Max(Set(kGeluLeast), Load(gate + i));  // the constant comes first: a NaN stays one
    const Floats slope = Fma(Set(kGeluCubic), m * m, Set(kGeluLinear));
    Store(out + i, TimesSigmoid(m, m * slope) * Load(up + i));
  }
  kScalarKernels.geglu(gate + i, up + i, n - i, out + i);
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
  const Floats most = Set(limit), least = Set(-limit);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats g = Min(most, Load(gate + i)), u = Min(most, Max(least, Load(up + i)));
    Store(out + i, TimesSigmoid(g, Set(alpha) * g) * (u + Set(1.0f)));
  }
  kScalarKernels.clamped_swiglu(gate + i, up + i, n - i, alpha, limit, out + i);
}

void SoftCapRow(float cap, int64_t n, float* x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(x + i, SoftCap(Load(x + i), Set(cap)));
  kScalarKernels.soft_cap(cap, n - i, x + i);
}

void Add(const float* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += in[i];
}

void AddScaled(const float* in, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = __builtin_fmaf(in[i], scale, out[i]);
}

void Rope(float* head, const float* cos, const float* sin, int head_dim, bool halves) {
  const int half = head_dim / 2;
  int i = 0;
  if (halves) {
    for (; i + kLanes <= half; i += kLanes) {
      const Floats a = Load(head + i), b = Load(head + half + i), c = Load(cos + i), s = Load(sin + i);
      Store(head + i, FmaMinus(a, c, b * s));
      Store(head + half + i, Fma(b, c, a * s));
    }
  } else {
    for (; i + kRotatedPairs <= half; i += kRotatedPairs) RotatePairs(head + 2 * i, cos + i, sin + i);
  }
  RopeFrom(i, head, cos, sin, head_dim, halves);
}

float LogSumExp(const float* x, int64_t n) {
  Floats largest = Set(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Max(largest, Load(x + i));
  float max = ReduceMax(largest);
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  if (max == -__builtin_inff()) return max;
  Doubles sums[kSumVectors] = {};
  for (i = 0; i + kSumLanes <= n; i += kSumLanes) {
    for (int j = 0; j < kSumVectors; j += 2) {
      const Floats e = Exp(Load(x + i + j * kDoubleLanes) - Set(max));
      sums[j] += Low(e);
      sums[j + 1] += High(e);
    }
  }
  double lanes[kSumLanes];
  for (int j = 0; j < kSumVectors; ++j) StoreDoubles(lanes + j * kDoubleLanes, sums[j]);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += static_cast<double>(FixedExp(x[i + lane] - max));
  return LogOfLanes(lanes, max);
}

void ConvSilu(const float* const* x, const float* weights, int64_t weight_stride, int taps, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats y = Load(weights + i) * Load(x[0] + i);
    for (int t = 1; t < taps; ++t) y = Fma(Load(weights + t * weight_stride + i), Load(x[t] + i), y);
    Store(out + i, TimesSigmoid(y, y));
  }
  for (; i < n; ++i) {
    float y = weights[i] * x[0][i];
    for (int t = 1; t < taps; ++t) y = __builtin_fmaf(weights[t * weight_stride + i], x[t][i], y);
    out[i] = y / (1.0f + FixedExp(-y));
  }
}

void L2Norm(const float* x, int64_t n, float eps, float scale, float* out) {
  double lanes[kSumLanes];
  SumSquares(x, n, lanes);
  const float factor = L2Factor(lanes, eps, scale);
  for (int64_t j = 0; j < n; ++j) out[j] = x[j] * factor;
}

void TimesSigmoidRow(const float* gate, int64_t n, float* x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(x + i, TimesSigmoid(Load(x + i), Load(gate + i)));
  kScalarKernels.times_sigmoid(gate + i, n - i, x + i);
}

float Dot(const float* a, const float* b, int64_t n) {
  constexpr int kVectors = kSumLanes / kLanes;
  Floats sums[kVectors];
  for (int j = 0; j < kVectors; ++j) sums[j] = Set(0.0f);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int j = 0; j < kVectors; ++j) sums[j] = Fma(Load(a + i + j * kLanes), Load(b + i + j * kLanes), sums[j]);
  }
  float lanes[kSumLanes];
  for (int j = 0; j < kVectors; ++j) Store(lanes + j * kLanes, sums[j]);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] = __builtin_fmaf(a[i + lane], b[i + lane], lanes[lane]);
  return TreeSum(lanes);
}

void MergeAttention(const AttentionState& granule, int columns, int value_dim, AttentionState state) {
  for (int c = 0; c < columns; ++c) {
    if (granule.max[c] == -__builtin_inff()) continue;
    const MergeFactors factors = MergeGranule(granule.max[c], granule.sum[c], state.max + c, state.sum + c);
    const Floats old_factor = Set(factors.old_factor), new_factor = Set(factors.new_factor);
    const float* in = granule.acc + static_cast<int64_t>(c) * value_dim;
    float* out = state.acc + static_cast<int64_t>(c) * value_dim;
    int d = 0;
    for (; d + kLanes <= value_dim; d += kLanes) {
      Store(out + d, Fma(Load(out + d), old_factor, Load(in + d) * new_factor));
    }
    for (; d < value_dim; ++d) out[d] = __builtin_fmaf(out[d], factors.old_factor, in[d] * factors.new_factor);
  }
}

// The product of the float types by tiles, or that of the integer types.
template <const FloatTables& kFloat, MatmulFn* kInteger>
void Matmul(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  if (FindIntegerLayout(weights.type) != nullptr) return kInteger(weights, in, columns, out, out_stride);
  MatmulByTiles(kFloat, weights, in, columns, out, out_stride);
}

template <const AttendTables& kTables>
void Attend(const AttentionSpan& span, const float* q, int64_t q_stride, const int32_t* begins, const int32_t* limits,
            int columns, AttentionState state) {
  AttendByTiles(kTables, span, q, q_stride, begins, limits, columns, state);
}

constexpr Kernels TableOf(InstructionSet set, bool bf16_dot, MatmulFn* matmul, AttendFn* attend,
                          const SamplingKernels* sampling) {
  return {
      .isa = InstructionSetName(set),
      .bf16_dot = bf16_dot,
      .pack_panel = PackPanel,
      .quantize_row = QuantizeRowInt8,
      .round_row = RoundToBf16,
      .matmul = matmul,
      .rms_norm = RmsNorm,
      .swiglu = Swiglu,
      .geglu = Geglu,
      .clamped_swiglu = ClampedSwiglu,
      .soft_cap = SoftCapRow,
      .add = Add,
      .add_scaled = AddScaled,
      .rope = Rope,
      .store_k = StoreHead<true>,
      .store_v = StoreHead<false>,
      .attend = attend,
      .merge_attention = MergeAttention,
      .delta_rule = DeltaRule,
      .conv_silu = ConvSilu,
      .l2_norm = L2Norm,
      .times_sigmoid = TimesSigmoidRow,
      .dot = Dot,
      .log_sum_exp = LogSumExp,
      .sampling = sampling,
  };
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_ROWS_H_
