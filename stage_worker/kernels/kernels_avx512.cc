// The tables of the AVX-512 sets, and their functions over single rows.

#include <cfloat>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/avx512.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 16;

// -128 * sum, also of what conversions make of numbers that are not finite.
int32_t StartOf(int32_t sum) { return static_cast<int32_t>(0u - (static_cast<uint32_t>(sum) << 7)); }

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const __m512 low = _mm512_loadu_ps(x + b * kActivationGroup);
    const __m512 high = _mm512_loadu_ps(x + b * kActivationGroup + kLanes);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const float scale = largest / 127.0f < FLT_MIN ? 0.0f : largest / 127.0f;
    const __m512 divisor = _mm512_set1_ps(scale);
    const __mmask16 nonzero = scale == 0.0f ? 0 : 0xffff;
    const __m512i q_low = _mm512_maskz_cvtps_epi32(nonzero, _mm512_div_ps(low, divisor));
    const __m512i q_high = _mm512_maskz_cvtps_epi32(nonzero, _mm512_div_ps(high, divisor));
    int8_t* out = q + b * kActivationGroup;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(q_low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kLanes), _mm512_cvtepi32_epi8(q_high));
    scales[b] = scale;
    half_starts[2 * b] = StartOf(_mm512_reduce_add_epi32(q_low));
    half_starts[2 * b + 1] = StartOf(_mm512_reduce_add_epi32(q_high));
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // The square of a float is exact in double, so a fused addition rounds the same as a separate one.
    const __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
    const __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  double lanes[kLanes];
  _mm512_storeu_pd(lanes, low);
  _mm512_storeu_pd(lanes + 8, high);
  for (int lane = 0; i + lane < n; ++lane)
    lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  const float factor = RmsFactor(lanes, n, eps);
  for (int64_t j = 0; j < n; ++j) out[j] = x[j] * factor * weight[j];
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512 z = _mm512_loadu_ps(gate + i);
    const __m512 minus_z = _mm512_xor_ps(z, _mm512_set1_ps(-0.0f));
    const __m512 silu = _mm512_div_ps(z, _mm512_add_ps(one, Exp(minus_z)));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(silu, _mm512_loadu_ps(up + i)));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + FixedExp(-gate[i])) * up[i];
}

// x / (1 + exp(-y)).
inline __m512 TimesSigmoid(__m512 x, __m512 y) {
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), Exp(_mm512_xor_ps(y, _mm512_set1_ps(-0.0f)))));
}

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // The constant comes first: for a NaN the second operand is the result. So in the next function.
    const __m512 m = _mm512_max_ps(_mm512_set1_ps(kGeluLeast), _mm512_loadu_ps(gate + i));
    const __m512 slope = _mm512_fmadd_ps(_mm512_set1_ps(kGeluCubic), _mm512_mul_ps(m, m), _mm512_set1_ps(kGeluLinear));
    const __m512 gelu = TimesSigmoid(m, _mm512_mul_ps(m, slope));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(gelu, _mm512_loadu_ps(up + i)));
  }
  kScalarKernels.geglu(gate + i, up + i, n - i, out + i);
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
  const __m512 most = _mm512_set1_ps(limit), least = _mm512_set1_ps(-limit);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512 g = _mm512_min_ps(most, _mm512_loadu_ps(gate + i));
    const __m512 u = _mm512_min_ps(most, _mm512_max_ps(least, _mm512_loadu_ps(up + i)));
    const __m512 gated = TimesSigmoid(g, _mm512_mul_ps(_mm512_set1_ps(alpha), g));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(gated, _mm512_add_ps(u, _mm512_set1_ps(1.0f))));
  }
  kScalarKernels.clamped_swiglu(gate + i, up + i, n - i, alpha, limit, out + i);
}

void SoftCapRow(float cap, int64_t n, float* x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm512_storeu_ps(x + i, SoftCap(_mm512_loadu_ps(x + i), _mm512_set1_ps(cap)));
  kScalarKernels.soft_cap(cap, n - i, x + i);
}

void Add(const float* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += in[i];
}

void AddScaled(const float* in, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = __builtin_fmaf(in[i], scale, out[i]);
}

void RopeHalves(float* head, const float* cos, const float* sin, int half) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const __m512 a = _mm512_loadu_ps(head + i), b = _mm512_loadu_ps(head + half + i);
    const __m512 c = _mm512_loadu_ps(cos + i), s = _mm512_loadu_ps(sin + i);
    _mm512_storeu_ps(head + i, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    _mm512_storeu_ps(head + half + i, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
    head[half + i] = __builtin_fmaf(b, cos[i], a * sin[i]);
  }
}

void RopePairs(float* head, const float* cos, const float* sin, int half) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  int i = 0;
  for (; i + kLanes / 2 <= half; i += kLanes / 2) {
    const __m512 pairs = _mm512_loadu_ps(head + 2 * i);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(cos + i)));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(sin + i)));
    const __m512 cross = _mm512_mul_ps(_mm512_permute_ps(pairs, 0xb1), s);
    _mm512_storeu_ps(head + 2 * i, _mm512_fmaddsub_ps(pairs, c, cross));  // even lanes subtract, odd lanes add
  }
  for (; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
    head[2 * i + 1] = __builtin_fmaf(b, cos[i], a * sin[i]);
  }
}

void Rope(float* head, const float* cos, const float* sin, int head_dim, bool halves) {
  (halves ? RopeHalves : RopePairs)(head, cos, sin, head_dim / 2);
}

// By the type's own unit: with the dot instructions of bytes and of BF16 pairs, or without.
template <bool kVnni, bool kBf16>
void Matmul(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  if (FindIntegerLayout(weights.type) != nullptr) {
    return (kVnni ? IntegerMatmulAvx512Vnni : IntegerMatmulAvx512)(weights, in, columns, out, out_stride);
  }
  const bool pairs = kBf16 && weights.type == TensorType::kBF16;
  (pairs ? Bf16MatmulAvx512Bf16 : FloatMatmulAvx512)(weights, in, columns, out, out_stride);
}

float LogSumExp(const float* x, int64_t n) {
  __m512 largest = _mm512_set1_ps(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = _mm512_max_ps(largest, _mm512_loadu_ps(x + i));
  float max = _mm512_reduce_max_ps(largest);
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  if (max == -__builtin_inff()) return max;
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const __m512 e = Exp(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(max)));
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
  }
  double lanes[kLanes];
  _mm512_storeu_pd(lanes, low);
  _mm512_storeu_pd(lanes + 8, high);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += static_cast<double>(FixedExp(x[i + lane] - max));
  return LogOfLanes(lanes, max);
}

template <bool kVnni, bool kBf16>
constexpr Kernels TableOf(InstructionSet set) {
  return {
      .isa = InstructionSetName(set),
      .bf16_dot = kBf16,
      .pack_panel = PackPanel,
      .quantize_row = QuantizeRowInt8,
      .round_row = RoundRowAvx512,
      .matmul = Matmul<kVnni, kBf16>,
      .rms_norm = RmsNorm,
      .swiglu = Swiglu,
      .geglu = Geglu,
      .clamped_swiglu = ClampedSwiglu,
      .soft_cap = SoftCapRow,
      .add = Add,
      .add_scaled = AddScaled,
      .rope = Rope,
      .store_k = StoreKAvx512,
      .store_v = StoreVAvx512,
      .attend = AttendAvx512,
      .merge_attention = MergeAttentionAvx512,
      .log_sum_exp = LogSumExp,
      .sampling = &kSamplingAvx512,
  };
}

}  // namespace

constexpr Kernels kAvx512Kernels = TableOf<false, false>(InstructionSet::kAvx512);
constexpr Kernels kAvx512VnniKernels = TableOf<true, false>(InstructionSet::kAvx512Vnni);
constexpr Kernels kAvx512Bf16Kernels = TableOf<true, true>(InstructionSet::kAvx512Bf16);

}  // namespace stagecoach
