// The tables for Arm, and their functions over single rows.

#include <cfloat>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/neon.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 4;
constexpr int kSumLanes = 16;  // lanes of every sum over a row

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  constexpr int kVectors = kActivationGroup / kLanes;
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const float* in = x + b * kActivationGroup;
    float32x4_t largest = vdupq_n_f32(0.0f);
    for (int i = 0; i < kVectors; ++i) largest = vmaxq_f32(vabsq_f32(vld1q_f32(in + i * kLanes)), largest);
    const float quotient = vmaxvq_f32(largest) / 127.0f;
    const float scale = quotient < FLT_MIN ? 0.0f : quotient;
    int32x4_t values[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      values[i] = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(in + i * kLanes), vdupq_n_f32(scale)));
      if (scale == 0.0f) values[i] = vdupq_n_s32(0);
    }
    for (int half = 0; half < 2; ++half) {
      const int32x4_t* four = values + half * kVectors / 2;
      const int16x8_t low = vcombine_s16(vmovn_s32(four[0]), vmovn_s32(four[1]));
      const int16x8_t high = vcombine_s16(vmovn_s32(four[2]), vmovn_s32(four[3]));
      vst1q_s8(q + b * kActivationGroup + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      const int32x4_t sum = vaddq_s32(vaddq_s32(four[0], four[1]), vaddq_s32(four[2], four[3]));
      half_starts[2 * b + half] = -128 * vaddvq_s32(sum);
    }
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
    scales[b] = scale;
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  double lanes[kSumLanes];
  float64x2_t sum[kSumLanes / 2];
  for (auto& two : sum) two = vdupq_n_f64(0.0);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int j = 0; j < kSumLanes / 2; ++j) {
      // The square of a float is exact in double, so a fused addition rounds the same as a separate one.
      const float64x2_t value = vcvt_f64_f32(vld1_f32(x + i + 2 * j));
      sum[j] = vfmaq_f64(sum[j], value, value);
    }
  }
  for (int j = 0; j < kSumLanes / 2; ++j) vst1q_f64(lanes + 2 * j, sum[j]);
  for (int lane = 0; i + lane < n; ++lane) {
    lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  }
  const float factor = RmsFactor(lanes, n, eps);
  for (int64_t j = 0; j < n; ++j) out[j] = x[j] * factor * weight[j];
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const float32x4_t z = vld1q_f32(gate + i);
    const float32x4_t silu = vdivq_f32(z, vaddq_f32(vdupq_n_f32(1.0f), Exp(vnegq_f32(z))));
    vst1q_f32(out + i, vmulq_f32(silu, vld1q_f32(up + i)));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + FixedExp(-gate[i])) * up[i];
}

// x / (1 + exp(-y)).
inline float32x4_t TimesSigmoid(float32x4_t x, float32x4_t y) {
  return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), Exp(vnegq_f32(y))));
}

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const float32x4_t m = vmaxq_f32(vdupq_n_f32(kGeluLeast), vld1q_f32(gate + i));
    const float32x4_t slope = vfmaq_f32(vdupq_n_f32(kGeluLinear), vdupq_n_f32(kGeluCubic), vmulq_f32(m, m));
    vst1q_f32(out + i, vmulq_f32(TimesSigmoid(m, vmulq_f32(m, slope)), vld1q_f32(up + i)));
  }
  kScalarKernels.geglu(gate + i, up + i, n - i, out + i);
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
  const float32x4_t most = vdupq_n_f32(limit), least = vdupq_n_f32(-limit);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const float32x4_t g = vminq_f32(most, vld1q_f32(gate + i));
    const float32x4_t u = vminq_f32(most, vmaxq_f32(least, vld1q_f32(up + i)));
    const float32x4_t gated = TimesSigmoid(g, vmulq_f32(vdupq_n_f32(alpha), g));
    vst1q_f32(out + i, vmulq_f32(gated, vaddq_f32(u, vdupq_n_f32(1.0f))));
  }
  kScalarKernels.clamped_swiglu(gate + i, up + i, n - i, alpha, limit, out + i);
}

void SoftCapRow(float cap, int64_t n, float* x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vst1q_f32(x + i, SoftCap(vld1q_f32(x + i), vdupq_n_f32(cap)));
  kScalarKernels.soft_cap(cap, n - i, x + i);
}

void Add(const float* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += in[i];
}

void AddScaled(const float* in, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = __builtin_fmaf(in[i], scale, out[i]);
}

// The pairs (a, b) of four angles.
inline void Rotate(const float* cos, const float* sin, float32x4_t* a, float32x4_t* b) {
  const float32x4_t c = vld1q_f32(cos), s = vld1q_f32(sin), x = *a, y = *b;
  *a = vfmaq_f32(vnegq_f32(vmulq_f32(y, s)), x, c);
  *b = vfmaq_f32(vmulq_f32(x, s), y, c);
}

void Rope(float* head, const float* cos, const float* sin, int head_dim, bool halves) {
  const int half = head_dim / 2;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    if (halves) {
      float32x4_t a = vld1q_f32(head + i), b = vld1q_f32(head + half + i);
      Rotate(cos + i, sin + i, &a, &b);
      vst1q_f32(head + i, a);
      vst1q_f32(head + half + i, b);
    } else {
      float32x4x2_t pairs = vld2q_f32(head + 2 * i);
      Rotate(cos + i, sin + i, &pairs.val[0], &pairs.val[1]);
      vst2q_f32(head + 2 * i, pairs);
    }
  }
  for (; i < half; ++i) {
    float* a = halves ? head + i : head + 2 * i;
    float* b = halves ? head + i + half : head + 2 * i + 1;
    const float x = *a, y = *b;
    *a = __builtin_fmaf(x, cos[i], -(y * sin[i]));
    *b = __builtin_fmaf(y, cos[i], x * sin[i]);
  }
}

float LogSumExp(const float* x, int64_t n) {
  float32x4_t largest = vdupq_n_f32(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = vmaxq_f32(largest, vld1q_f32(x + i));
  float max = vmaxvq_f32(largest);
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  if (max == -__builtin_inff()) return max;
  float64x2_t sum[kSumLanes / 2];
  for (auto& two : sum) two = vdupq_n_f64(0.0);
  for (i = 0; i + kSumLanes <= n; i += kSumLanes) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const float32x4_t e = Exp(vsubq_f32(vld1q_f32(x + i + quarter * kLanes), vdupq_n_f32(max)));
      sum[2 * quarter] = vaddq_f64(sum[2 * quarter], vcvt_f64_f32(vget_low_f32(e)));
      sum[2 * quarter + 1] = vaddq_f64(sum[2 * quarter + 1], vcvt_high_f64_f32(e));
    }
  }
  double lanes[kSumLanes];
  for (int j = 0; j < kSumLanes / 2; ++j) vst1q_f64(lanes + 2 * j, sum[j]);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += static_cast<double>(FixedExp(x[i + lane] - max));
  return LogOfLanes(lanes, max);
}

template <auto kIntegerMatmul>
void Matmul(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const bool is_float = FindIntegerLayout(weights.type) == nullptr;
  (is_float ? FloatMatmulNeon : kIntegerMatmul)(weights, in, columns, out, out_stride);
}

template <auto kIntegerMatmul>
constexpr Kernels MakeTable(InstructionSet set) {
  return {
      .isa = InstructionSetName(set),
      .bf16_dot = false,
      .pack_panel = PackPanel,
      .quantize_row = QuantizeRowInt8,
      .round_row = RoundRow,
      .matmul = Matmul<kIntegerMatmul>,
      .rms_norm = RmsNorm,
      .swiglu = Swiglu,
      .geglu = Geglu,
      .clamped_swiglu = ClampedSwiglu,
      .soft_cap = SoftCapRow,
      .add = Add,
      .add_scaled = AddScaled,
      .rope = Rope,
      .store_k = StoreKScalar,
      .store_v = StoreVScalar,
      .attend = AttendNeon,
      .merge_attention = MergeAttentionScalar,
      .log_sum_exp = LogSumExp,
      .sampling = &kSamplingNeon,
  };
}

}  // namespace

const Kernels kNeonKernels = MakeTable<IntegerMatmulNeon>(InstructionSet::kNeonDotprod);
const Kernels kNeonI8mmKernels = MakeTable<IntegerMatmulNeonI8mm>(InstructionSet::kNeonI8mm);

}  // namespace stagecoach
