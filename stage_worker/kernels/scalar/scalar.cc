// The scalar twin of every kernel but attention's: it defines what the vectorised units compute, to the bit.

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/job/job_choices.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/kernels/sampling.h"

namespace stagecoach {

namespace {

template <typename T>
T Tree(const T lanes[16]) {
  T sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = lanes[i] + lanes[i + 8];
  for (int width = 4; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
  }
  return sum[0];
}

}  // namespace

float TreeSum(const float lanes[16]) { return Tree(lanes); }
double TreeSum(const double lanes[16]) { return Tree(lanes); }

float RmsFactor(const double lanes[16], int64_t n, float eps) {
  const double mean = TreeSum(lanes) / static_cast<double>(n);
  return static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
}

float L2Factor(const double lanes[16], float eps, float scale) {
  const double norm = std::sqrt(TreeSum(lanes)), least = static_cast<double>(eps);
  return static_cast<float>(static_cast<double>(scale) / (norm < least ? least : norm));
}

float LogOfLanes(const double lanes[16], float max) { return FixedLog(static_cast<float>(TreeSum(lanes))) + max; }

float PanelFloat(TensorType type, const uint8_t* panel, int64_t column, int lane) {
  if (type == TensorType::kF32) {
    float value;
    std::memcpy(&value, panel + (column * kPanelRows + lane) * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, panel + ((column / 2 * kPanelRows + lane) * 2 + column % 2) * 2, sizeof(bits));
  return type == TensorType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

namespace {

constexpr int kLanes = kPanelRows;
constexpr int kScalarColumns = 8;  // columns that share the decoding of a weight

void FloatTile(const PanelSpan& weights, const uint8_t* panel, const Activations& in, int column, int columns,
               float* out, int64_t out_stride) {
  float acc[kScalarColumns][kLanes] = {};
  for (int64_t k = 0; k < weights.cols; ++k) {
    float w[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) w[lane] = PanelFloat(weights.type, panel, k, lane);
    for (int c = 0; c < columns; ++c) {
      const float x = in.x[(column + c) * in.x_stride + k];
      for (int lane = 0; lane < kLanes; ++lane) acc[c][lane] = std::fma(w[lane], x, acc[c][lane]);
    }
  }
  for (int c = 0; c < columns; ++c) std::memcpy(out + c * out_stride, acc[c], sizeof(acc[c]));
}

// The minimum's part and the code's part of one block of 32, in one lane and column.
float AddBlock(const IntegerLayout& layout, const UnpackedBlock& block, const int8_t* q, float x_scale, float acc) {
  const int groups = layout.halves ? 2 : 1, size = kCodeBlock / groups;
  if (layout.minima) {
    for (int g = 0; g < groups; ++g) {
      int32_t sum = 0;
      for (int k = 0; k < size; ++k) sum += q[g * size + k];
      acc = std::fma(block.minima[g], static_cast<float>(sum) * x_scale, acc);
    }
  }
  for (int g = 0; g < groups; ++g) {
    int32_t dot = 0;
    for (int k = 0; k < size; ++k) dot += block.codes[g * size + k] * q[g * size + k];
    acc = std::fma(static_cast<float>(dot), block.scales[g] * x_scale, acc);
  }
  return acc;
}

void IntegerTile(const PanelSpan& weights, const uint8_t* panel, const Activations& in, int column, int columns,
                 float* out, int64_t out_stride) {
  const IntegerLayout& layout = *FindIntegerLayout(weights.type);
  const PanelSections sections = SectionsOf(weights.type, weights.cols);
  float acc[kScalarColumns][kLanes] = {};
  const int64_t blocks = weights.cols / kCodeBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    for (int lane = 0; lane < kLanes; ++lane) {
      UnpackedBlock block;
      UnpackBlock(layout, sections, panel, b, lane, &block);
      for (int c = 0; c < columns; ++c) {
        const int8_t* q = in.q + (column + c) * weights.cols + b * kCodeBlock;
        acc[c][lane] = AddBlock(layout, block, q, in.scales[(column + c) * blocks + b], acc[c][lane]);
      }
    }
  }
  for (int c = 0; c < columns; ++c) std::memcpy(out + c * out_stride, acc[c], sizeof(acc[c]));
}

void Matmul(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const size_t panel_bytes = PanelBytes(weights.type, weights.cols);
  for (int64_t p = 0; p < weights.panels; ++p) {
    const uint8_t* panel = weights.data + p * panel_bytes;
    for (int column = 0; column < columns; column += kScalarColumns) {
      const int count = columns - column < kScalarColumns ? columns - column : kScalarColumns;
      float* tile = out + column * out_stride + p * kPanelRows;
      const auto body = FindIntegerLayout(weights.type) != nullptr ? IntegerTile : FloatTile;
      body(weights, panel, in, column, count, tile, out_stride);
    }
  }
}

void QuantizeRowInt8(const float* x, int64_t cols, int8_t* q, float* scales, int32_t* starts, int32_t* half_starts) {
  for (int64_t b = 0; b < cols / kActivationGroup; ++b) {
    const float* in = x + b * kActivationGroup;
    float largest = 0.0f;
    for (int i = 0; i < kActivationGroup; ++i) largest = std::fabs(in[i]) > largest ? std::fabs(in[i]) : largest;
    // A scale that is not a normal number has lost bits and could give values beyond 127: such a group is zero.
    const float scale = largest / 127.0f < FLT_MIN ? 0.0f : largest / 127.0f;
    int32_t sums[2] = {};
    for (int i = 0; i < kActivationGroup; ++i) {
      const float shifted = (scale == 0.0f ? 0.0f : in[i] / scale) + kRoundFloat;
      const int8_t value = static_cast<int8_t>(std::bit_cast<uint32_t>(shifted) & 0xffu);
      q[b * kActivationGroup + i] = value;
      sums[i / 16] += value;
    }
    scales[b] = scale;
    starts[b] = -128 * (sums[0] + sums[1]);
    half_starts[2 * b] = -128 * sums[0];
    half_starts[2 * b + 1] = -128 * sums[1];
  }
}

void RoundRow(const float* x, int64_t cols, uint16_t* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = FloatToBf16(x[i]);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const float factor = RmsFactor(lanes, n, eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void Swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + FixedExp(-gate[i])) * up[i];
}

void Geglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float m = gate[i] < kGeluLeast ? kGeluLeast : gate[i];
    out[i] = m / (1.0f + FixedExp(-(m * std::fma(kGeluCubic, m * m, kGeluLinear)))) * up[i];
  }
}

void ClampedSwiglu(const float* gate, const float* up, int64_t n, float alpha, float limit, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float above = up[i] < -limit ? -limit : up[i];
    const float u = above > limit ? limit : above;
    out[i] = g / (1.0f + FixedExp(-(alpha * g))) * (u + 1.0f);
  }
}

void SoftCap(float cap, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * FixedTanh(x[i] / cap);
}

void Add(const float* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] += in[i];
}

void AddScaled(const float* in, float scale, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::fma(in[i], scale, out[i]);
}

void ConvSilu(const float* const* x, const float* weights, int64_t weight_stride, int taps, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    float y = weights[i] * x[0][i];
    for (int t = 1; t < taps; ++t) y = std::fma(weights[t * weight_stride + i], x[t][i], y);
    out[i] = y / (1.0f + FixedExp(-y));
  }
}

void L2Norm(const float* x, int64_t n, float eps, float scale, float* out) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const float factor = L2Factor(lanes, eps, scale);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void TimesSigmoid(const float* gate, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] / (1.0f + FixedExp(-gate[i]));
}

float Dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] = std::fma(a[i], b[i], lanes[i % kLanes]);
  return TreeSum(lanes);
}

void Rope(float* head, const float* cos, const float* sin, int head_dim, bool halves) {
  RopeFrom(0, head, cos, sin, head_dim, halves);
}

float LogSumExp(const float* x, int64_t n) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  if (max == -std::numeric_limits<float>::infinity()) return max;
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += static_cast<double>(FixedExp(x[i] - max));
  return LogOfLanes(lanes, max);
}

}  // namespace

void RopeFrom(int first, float* head, const float* cos, const float* sin, int head_dim, bool halves) {
  const int half = head_dim / 2;
  for (int i = first; i < half; ++i) {
    float* a = halves ? head + i : head + 2 * i;
    float* b = halves ? head + i + half : head + 2 * i + 1;
    const float x = *a, y = *b;
    *a = std::fma(x, cos[i], -(y * sin[i]));
    *b = std::fma(y, cos[i], x * sin[i]);
  }
}

const Kernels kScalarKernels = {
    .isa = InstructionSetName(InstructionSet::kScalar),
    .bf16_dot = false,
    .pack_panel = PackPanelScalar,
    .quantize_row = QuantizeRowInt8,
    .round_row = RoundRow,
    .matmul = Matmul,
    .rms_norm = RmsNorm,
    .swiglu = Swiglu,
    .geglu = Geglu,
    .clamped_swiglu = ClampedSwiglu,
    .soft_cap = SoftCap,
    .add = Add,
    .add_scaled = AddScaled,
    .rope = Rope,
    .store_k = StoreKScalar,
    .store_v = StoreVScalar,
    .attend = AttendScalar,
    .merge_attention = MergeAttentionScalar,
    .delta_rule = DeltaRuleScalar,
    .conv_silu = ConvSilu,
    .l2_norm = L2Norm,
    .times_sigmoid = TimesSigmoid,
    .dot = Dot,
    .log_sum_exp = LogSumExp,
    .sampling = &kSamplingScalar,
};

}  // namespace stagecoach
