// The table for AVX2 with FMA and F16C, and its functions over single rows.

#include <cfloat>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/attend.h"
#include "stage_worker/kernels/avx2.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 8;
constexpr int kSumLanes = 16;  // lanes of every sum over a row

int32_t ReduceAdd(__m256i sum) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// -128 * sum, also of what conversions make of numbers that are not finite.
int32_t StartOf(int32_t sum) { return static_cast<int32_t>(0u - (static_cast<uint32_t>(sum) << 7)); }

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const float* in = x + b * kActivationGroup;
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i)
      largest = _mm256_max_ps(_mm256_and_ps(_mm256_loadu_ps(in + i * kLanes), no_sign), largest);
    const float quotient = ReduceMax(largest) / 127.0f;
    const float scale = quotient < FLT_MIN ? 0.0f : quotient;
    __m256i values[4];
    for (int i = 0; i < 4; ++i) {
      values[i] = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(in + i * kLanes), _mm256_set1_ps(scale)));
      if (scale == 0.0f) values[i] = _mm256_setzero_si256();
    }
    // The packs work within 128 bits; the permutation puts the fours back in order.
    const __m256i low = _mm256_packs_epi32(values[0], values[1]);
    const __m256i high = _mm256_packs_epi32(values[2], values[3]);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + b * kActivationGroup), bytes);
    half_starts[2 * b] = StartOf(ReduceAdd(_mm256_add_epi32(values[0], values[1])));
    half_starts[2 * b + 1] = StartOf(ReduceAdd(_mm256_add_epi32(values[2], values[3])));
    starts[b] = half_starts[2 * b] + half_starts[2 * b + 1];
    scales[b] = scale;
  }
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  __m256d sum[4];
  for (int part = 0; part < 4; ++part) sum[part] = _mm256_setzero_pd();
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int part = 0; part < 4; ++part) {
      // The square of a float is exact in double, so a fused addition rounds the same as a separate one.
      const __m256d value = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * part));
      sum[part] = _mm256_fmadd_pd(value, value, sum[part]);
    }
  }
  double lanes[kSumLanes];
  for (int part = 0; part < 4; ++part) _mm256_storeu_pd(lanes + 4 * part, sum[part]);
  for (int lane = 0; i + lane < n; ++lane)
    lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  const float factor = RmsFactor(lanes, n, eps);
  for (int64_t j = 0; j < n; ++j) out[j] = x[j] * factor * weight[j];
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 z = _mm256_loadu_ps(gate + i);
    const __m256 minus_z = _mm256_xor_ps(z, _mm256_set1_ps(-0.0f));
    const __m256 silu = _mm256_div_ps(z, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(minus_z)));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1.0f + FixedExp(-gate[i])) * up[i];
}

// x / (1 + exp(-y)).
inline __m256 TimesSigmoid(__m256 x, __m256 y) {
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(_mm256_xor_ps(y, _mm256_set1_ps(-0.0f)))));
}

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // The constant comes first: for a NaN the second operand is the result. So in the next function.
    const __m256 m = _mm256_max_ps(_mm256_set1_ps(kGeluLeast), _mm256_loadu_ps(gate + i));
    const __m256 slope = _mm256_fmadd_ps(_mm256_set1_ps(kGeluCubic), _mm256_mul_ps(m, m), _mm256_set1_ps(kGeluLinear));
    const __m256 gelu = TimesSigmoid(m, _mm256_mul_ps(m, slope));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(gelu, _mm256_loadu_ps(up + i)));
  }
  kScalarKernels.geglu(gate + i, up + i, n - i, out + i);
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
  const __m256 most = _mm256_set1_ps(limit), least = _mm256_set1_ps(-limit);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 g = _mm256_min_ps(most, _mm256_loadu_ps(gate + i));
    const __m256 u = _mm256_min_ps(most, _mm256_max_ps(least, _mm256_loadu_ps(up + i)));
    const __m256 gated = TimesSigmoid(g, _mm256_mul_ps(_mm256_set1_ps(alpha), g));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(gated, _mm256_add_ps(u, _mm256_set1_ps(1.0f))));
  }
  kScalarKernels.clamped_swiglu(gate + i, up + i, n - i, alpha, limit, out + i);
}

void SoftCapRow(float cap, int64_t n, float* x) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm256_storeu_ps(x + i, SoftCap(_mm256_loadu_ps(x + i), _mm256_set1_ps(cap)));
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
    const __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(head + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
    head[half + i] = __builtin_fmaf(b, cos[i], a * sin[i]);
  }
}

void RopePairs(float* head, const float* cos, const float* sin, int half) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  int i = 0;
  for (; i + kLanes / 2 <= half; i += kLanes / 2) {
    const __m256 pairs = _mm256_loadu_ps(head + 2 * i);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos + i)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin + i)), twice);
    const __m256 cross = _mm256_mul_ps(_mm256_permute_ps(pairs, 0xb1), s);
    _mm256_storeu_ps(head + 2 * i, _mm256_fmaddsub_ps(pairs, c, cross));  // even lanes subtract, odd lanes add
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

void Matmul(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const bool is_float = FindIntegerLayout(weights.type) == nullptr;
  (is_float ? FloatMatmulAvx2 : IntegerMatmulAvx2)(weights, in, columns, out, out_stride);
}

float LogSumExp(const float* x, int64_t n) {
  __m256 largest = _mm256_set1_ps(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = _mm256_max_ps(largest, _mm256_loadu_ps(x + i));
  float max = ReduceMax(largest);
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  if (max == -__builtin_inff()) return max;
  __m256d sum[4];
  for (int part = 0; part < 4; ++part) sum[part] = _mm256_setzero_pd();
  for (i = 0; i + kSumLanes <= n; i += kSumLanes) {
    for (int half = 0; half < 2; ++half) {
      const __m256 e = Exp(_mm256_sub_ps(_mm256_loadu_ps(x + i + half * kLanes), _mm256_set1_ps(max)));
      sum[2 * half] = _mm256_add_pd(sum[2 * half], _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
      sum[2 * half + 1] = _mm256_add_pd(sum[2 * half + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
    }
  }
  double lanes[kSumLanes];
  for (int part = 0; part < 4; ++part) _mm256_storeu_pd(lanes + 4 * part, sum[part]);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += static_cast<double>(FixedExp(x[i + lane] - max));
  return LogOfLanes(lanes, max);
}

}  // namespace

const Kernels kAvx2Kernels = {
    .isa = InstructionSetName(InstructionSet::kAvx2),
    .bf16_dot = false,
    .pack_panel = PackPanel,
    .quantize_row = QuantizeRowInt8,
    .round_row = RoundRow,
    .matmul = Matmul,
    .rms_norm = RmsNorm,
    .swiglu = Swiglu,
    .geglu = Geglu,
    .clamped_swiglu = ClampedSwiglu,
    .soft_cap = SoftCapRow,
    .add = Add,
    .add_scaled = AddScaled,
    .rope = Rope,
    .store_k = StoreKAvx2,
    .store_v = StoreVAvx2,
    .attend = AttendAvx2,
    .merge_attention = MergeAttentionAvx2,
    .log_sum_exp = LogSumExp,
    .sampling = &kSamplingAvx2,
};

}  // namespace stagecoach
