#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// A scale below the smallest normal float has no finite inverse; as fp16 it is zero anyway.
float InverseScale(float scale) { return std::fabs(scale) < FLT_MIN ? 0.0f : 1.0f / scale; }

void EncodeQ8_0(const float* in, uint8_t* block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    CHECK(std::isfinite(in[j]));
    largest = std::max(largest, std::fabs(in[j]));
  }
  const float scale = largest / 127.0f;
  const float inverse = InverseScale(scale);
  StoreHalf(scale, block);
  for (int j = 0; j < 32; ++j) {
    const int8_t value = static_cast<int8_t>(std::round(in[j] * inverse));
    std::memcpy(block + 2 + j, &value, 1);
  }
}

// The value of the largest magnitude (the first of several) gets the code 0, which means -8: the scale has the opposite
// sign. Halves round up.
void EncodeQ4_0(const float* in, uint8_t* block) {
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    CHECK(std::isfinite(in[j]));
    if (std::fabs(in[j]) > std::fabs(extreme)) extreme = in[j];
  }
  const float scale = extreme / -8.0f;
  const float inverse = InverseScale(scale);
  const auto code = [&](float x) { return std::min(15, static_cast<int>(x * inverse + 8.5f)); };
  StoreHalf(scale, block);
  for (int j = 0; j < 16; ++j) block[2 + j] = static_cast<uint8_t>(code(in[j]) | (code(in[j + 16]) << 4));
}

// The mean magnitude is the scale of the least squared error for codes that are signs.
void EncodeQ1_0(const float* in, uint8_t* block) {
  float sum = 0;
  for (int j = 0; j < 128; ++j) {
    CHECK(std::isfinite(in[j]));
    sum += std::fabs(in[j]);
  }
  StoreHalf(sum / 128.0f, block);
  std::memset(block + 2, 0, 16);
  for (int j = 0; j < 128; ++j) block[2 + j / 8] |= static_cast<uint8_t>(in[j] >= 0 ? 1 << (j % 8) : 0);
}

// Values this small are zero in every type: the smallest fp16 scale is 2^-24.
constexpr float kVanishing = 1e-30f;

// To the nearest whole number within [low, high], at most 2^22 in magnitude; ties to even. The sum with 1.5 * 2^23
// rounds by itself, and unlike std::round it is vectorised.
inline float RoundWithin(float value, float low, float high) {
  constexpr float kUnits = 0x1.8p23f;
  return (std::min(std::max(value, low), high) + kUnits) - kUnits;
}

// The sum of term(0) to term(kCount - 1) in four interleaved parts, which fit one register; one sum would wait for
// every addition.
template <int kCount, typename Term>
inline float Sum(const Term& term) {
  float parts[4] = {};
  for (int i = 0; i < kCount; i += 4) {
    for (int lane = 0; lane < 4; ++lane) parts[lane] += term(i + lane);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

inline float Square(float x) { return x * x; }

// ---- Q4_K: value = scale * code - min, code 0 to 15, min >= 0, sub-blocks of 32 ----

constexpr int kSub4 = 32;

struct AffineFit {
  float scale = 0;
  float min = 0;
  float error = 0;  // squared
};

// The best codes for a given scale and minimum, and their squared error.
float AssignAffine(const float* x, float scale, float min, float* codes) {
  const float inverse = scale > kVanishing ? 1.0f / scale : 0.0f;
  for (int i = 0; i < kSub4; ++i) codes[i] = RoundWithin((x[i] + min) * inverse, 0, 15);
  return Sum<kSub4>([&](int i) { return Square(scale * codes[i] - min - x[i]); });
}

// The best scale and minimum for given codes (least squares, the minimum kept at 0 or above), and their squared error.
AffineFit SolveAffine(const float* x, const float* codes) {
  const float sum_q = Sum<kSub4>([&](int i) { return codes[i]; });
  const float sum_qq = Sum<kSub4>([&](int i) { return codes[i] * codes[i]; });
  const float sum_x = Sum<kSub4>([&](int i) { return x[i]; });
  const float sum_qx = Sum<kSub4>([&](int i) { return codes[i] * x[i]; });
  AffineFit fit;
  const float determinant = kSub4 * sum_qq - sum_q * sum_q;
  if (determinant > 0) {
    fit.scale = (kSub4 * sum_qx - sum_q * sum_x) / determinant;
    fit.min = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  }
  if (determinant <= 0 || fit.min < 0) {
    fit.scale = sum_qq > 0 ? sum_qx / sum_qq : 0.0f;
    fit.min = 0;
  }
  fit.scale = std::max(fit.scale, 0.0f);
  fit.error = Sum<kSub4>([&](int i) { return Square(fit.scale * codes[i] - fit.min - x[i]); });
  return fit;
}

// Fits one sub-block: tries grids from slightly coarser to clearly finer than its range, which clip the extremes, then
// refines the best.
AffineFit FitAffine(const float* x) {
  const float low = std::min(0.0f, *std::min_element(x, x + kSub4));
  const float high = *std::max_element(x, x + kSub4);
  if (high - low < kVanishing) return {0, -low, 0};
  float codes[kSub4];
  AffineFit best{0, 0, HUGE_VALF};
  for (int step = -2; step <= 6; ++step) {
    const float scale = (high - low) / (15.0f + 0.5f * static_cast<float>(step));
    AssignAffine(x, scale, -low, codes);
    const AffineFit fit = SolveAffine(x, codes);
    if (fit.error < best.error) best = fit;
  }
  for (int round = 0; round < 3; ++round) {
    AssignAffine(x, best.scale, best.min, codes);
    const AffineFit fit = SolveAffine(x, codes);
    if (!(fit.error < best.error)) break;
    best = fit;
  }
  return best;
}

struct AffineChoice {
  int scale = 0;  // 0 to 63, times d
  int min = 0;    // 0 to 63, times dmin
  float codes[kSub4] = {};
};

// The whole scale and minimum near `fit` that fit best once d and dmin are fixed.
AffineChoice ChooseAffine(const float* x, const AffineFit& fit, float d, float dmin) {
  const int scale = d > 0 ? static_cast<int>(RoundWithin(fit.scale / d, 0, 63)) : 0;
  const int min = dmin > 0 ? static_cast<int>(RoundWithin(fit.min / dmin, 0, 63)) : 0;
  AffineChoice best;
  float best_error = HUGE_VALF;
  for (int s = std::max(0, scale - 1); s <= std::min(63, scale + 1); ++s) {
    for (int m = std::max(0, min - 1); m <= std::min(63, min + 1); ++m) {
      float codes[kSub4];
      const float error = AssignAffine(x, d * static_cast<float>(s), dmin * static_cast<float>(m), codes);
      if (!(error < best_error)) continue;
      best_error = error;
      best.scale = s;
      best.min = m;
      std::memcpy(best.codes, codes, sizeof(codes));
    }
  }
  return best;
}

// The inverse of UnpackScaleAndMin; `packed` starts as zeros.
void PackScaleAndMin(const AffineChoice& choice, int s, uint8_t* packed) {
  if (s < 4) {
    packed[s] |= static_cast<uint8_t>(choice.scale);
    packed[s + 4] |= static_cast<uint8_t>(choice.min);
  } else {
    packed[s + 4] = static_cast<uint8_t>((choice.scale & 15) | ((choice.min & 15) << 4));
    packed[s - 4] |= static_cast<uint8_t>((choice.scale >> 4) << 6);
    packed[s] |= static_cast<uint8_t>((choice.min >> 4) << 6);
  }
}

// ---- Q6_K: value = scale * code, code -32 to 31, sub-blocks of 16 ----

constexpr int kSub6 = 16;

// The best codes for a scale of any sign.
void AssignSymmetric(const float* x, float scale, float* codes) {
  const float inverse = std::fabs(scale) > kVanishing ? 1.0f / scale : 0.0f;
  for (int i = 0; i < kSub6; ++i) codes[i] = RoundWithin(x[i] * inverse, -32, 31);
}

// A sub-block's own scale. The largest magnitude takes a code near -32, of either sign; the codes that follow get the
// least-squares scale sum(q x) / sum(q q), which lowers the error by sum(q x)^2 / sum(q q).
float FitSymmetric(const float* x) {
  const float extreme = *std::max_element(x, x + kSub6, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (std::fabs(extreme) < kVanishing) return 0;
  float best = 0, best_gain = 0;
  for (int step = -6; step <= 8; ++step) {
    float codes[kSub6];
    AssignSymmetric(x, extreme / (-32.0f - 0.25f * static_cast<float>(step)), codes);
    const float sum_qq = Sum<kSub6>([&](int i) { return codes[i] * codes[i]; });
    const float sum_qx = Sum<kSub6>([&](int i) { return codes[i] * x[i]; });
    if (sum_qx * sum_qx > best_gain * sum_qq) {
      best_gain = sum_qx * sum_qx / sum_qq;
      best = sum_qx / sum_qq;
    }
  }
  return best;
}

// The whole scale near the sub-block's own that fits best once d is fixed; its codes go to `codes`.
int ChooseSymmetric(const float* x, float fit, float d, float* codes) {
  const int near = d != 0 ? static_cast<int>(RoundWithin(fit / d, -128, 127)) : 0;
  int best = 0;
  float best_error = HUGE_VALF;
  for (int s = std::max(-128, near - 1); s <= std::min(127, near + 1); ++s) {
    float candidate[kSub6];
    const float scale = d * static_cast<float>(s);
    AssignSymmetric(x, scale, candidate);
    const float error = Sum<kSub6>([&](int i) { return Square(scale * candidate[i] - x[i]); });
    if (!(error < best_error)) continue;
    best_error = error;
    best = s;
    std::memcpy(codes, candidate, sizeof(candidate));
  }
  return best;
}

void EncodeQ4_K(const float* in, uint8_t* block) {
  AffineFit fits[8];
  float largest_scale = 0, largest_min = 0;
  for (int s = 0; s < 8; ++s) {
    fits[s] = FitAffine(in + kSub4 * s);
    largest_scale = std::max(largest_scale, fits[s].scale);
    largest_min = std::max(largest_min, fits[s].min);
  }
  std::memset(block, 0, 144);
  StoreHalf(largest_scale / 63.0f, block);
  StoreHalf(largest_min / 63.0f, block + 2);
  const float d = LoadHalf(block), dmin = LoadHalf(block + 2);
  for (int s = 0; s < 8; ++s) {
    const AffineChoice choice = ChooseAffine(in + kSub4 * s, fits[s], d, dmin);
    PackScaleAndMin(choice, s, block + 4);
    uint8_t* out = block + 16 + 32 * (s / 2);
    for (int l = 0; l < kSub4; ++l)
      out[l] |= static_cast<uint8_t>(static_cast<int>(choice.codes[l]) << (s % 2 ? 4 : 0));
  }
}

void EncodeQ6_K(const float* in, uint8_t* block) {
  float fits[16];
  float extreme = 0;  // of the largest magnitude; gets the whole scale -128
  for (int k = 0; k < 16; ++k) {
    fits[k] = FitSymmetric(in + kSub6 * k);
    if (std::fabs(fits[k]) > std::fabs(extreme)) extreme = fits[k];
  }
  std::memset(block, 0, 210);
  StoreHalf(extreme / -128.0f, block + 208);
  const float d = LoadHalf(block + 208);
  for (int k = 0; k < 16; ++k) {
    float codes[kSub6] = {};
    const int scale = ChooseSymmetric(in + kSub6 * k, fits[k], d, codes);
    block[192 + k] = static_cast<uint8_t>(scale);
    const int half = k / 8, quarter = k % 8 / 2, at = 16 * (k % 2);
    uint8_t* low = block + 64 * half + 32 * (quarter % 2) + at;
    uint8_t* high = block + 128 + 32 * half + at;
    for (int l = 0; l < kSub6; ++l) {
      const int code = static_cast<int>(codes[l]) + 32;
      low[l] |= static_cast<uint8_t>((code & 15) << (quarter < 2 ? 0 : 4));
      high[l] |= static_cast<uint8_t>((code >> 4) << (2 * quarter));
    }
  }
}

using EncodeBlock = void (*)(const float* in, uint8_t* block);

// nullptr for types of one element a block and for those that nothing here encodes.
EncodeBlock BlockEncoder(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0: return EncodeQ8_0;
    case TensorType::kQ4_0: return EncodeQ4_0;
    case TensorType::kQ4_K: return EncodeQ4_K;
    case TensorType::kQ6_K: return EncodeQ6_K;
    case TensorType::kQ1_0: return EncodeQ1_0;
    default: return nullptr;
  }
}

}  // namespace

bool CanQuantize(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16 ||
         BlockEncoder(type) != nullptr;
}

void QuantizeRow(TensorType type, const float* in, int64_t elements, uint8_t* row) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK(CanQuantize(type));
  CHECK_EQ(elements % info.block_elements, 0);
  if (type == TensorType::kF32) {
    if (elements > 0) std::memcpy(row, in, static_cast<size_t>(elements) * sizeof(float));
  } else if (type == TensorType::kF16) {
    for (int64_t i = 0; i < elements; ++i) StoreHalf(in[i], row + 2 * i);
  } else if (type == TensorType::kBF16) {
    for (int64_t i = 0; i < elements; ++i) StoreU16(FloatToBf16(in[i]), row + 2 * i);
  } else {
    const EncodeBlock encode = BlockEncoder(type);
    for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) encode(in + i, row);
  }
}

}  // namespace stagecoach
