// One decoder a block format: `block` to `out`, a block's elements. The scale is multiplied by its sub-scale first,
// then by the code, as the header says.

#include <bit>
#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian and is used in place");

void DecodeQ8_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
}

// Q4_0, Q4_1, Q5_0 and Q5_1: the low nibbles are elements 0 to 15, the high ones 16 to 31; five-bit types have the top
// bits in a word of their own.
template <bool kHasMin, bool kHasFifthBit>
void DecodeQ4Or5(const uint8_t* block, float* out) {
  constexpr int kHighAt = kHasMin ? 4 : 2;
  constexpr int kCodesAt = kHighAt + (kHasFifthBit ? 4 : 0);
  constexpr int kZero = kHasMin ? 0 : (kHasFifthBit ? 16 : 8);
  const float d = LoadHalf(block);
  const float m = kHasMin ? LoadHalf(block + 2) : 0.0f;
  const uint32_t high = kHasFifthBit ? LoadU32(block + kHighAt) : 0;
  for (int j = 0; j < 32; ++j) {
    const uint8_t byte = block[kCodesAt + j % 16];
    int code = j < 16 ? byte & 15 : byte >> 4;
    if (kHasFifthBit) code |= static_cast<int>((high >> j) & 1) << 4;
    const float product = d * static_cast<float>(code - kZero);
    out[j] = kHasMin ? product + m : product;
  }
}

void DecodeIQ4_NL(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4Values[block[2 + j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4Values[block[2 + j] >> 4]);
  }
}

void DecodeMXFP4(const uint8_t* block, float* out) {
  const float d = HalvedE8M0(block[0]);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kMxfp4Values[block[1 + j] & 15]);
    out[j + 16] = d * static_cast<float>(kMxfp4Values[block[1 + j] >> 4]);
  }
}

void DecodeQ2_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 80);
  const float dmin = LoadHalf(block + 82);
  for (int k = 0; k < 16; ++k) {  // sub-blocks of 16
    const float scale = d * static_cast<float>(block[k] & 15);
    const float min = dmin * static_cast<float>(block[k] >> 4);
    const uint8_t* codes = block + 16 + 32 * (k / 8) + 16 * (k % 2);
    const int shift = 2 * (k % 8 / 2);
    for (int l = 0; l < 16; ++l) *out++ = scale * static_cast<float>((codes[l] >> shift) & 3) - min;
  }
}

void DecodeQ3_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 108);
  for (int k = 0; k < 16; ++k) {  // sub-blocks of 16
    const float scale = d * static_cast<float>(UnpackQ3KScale(block + 96, k));
    const uint8_t* high = block + 16 * (k % 2);
    const uint8_t* codes = block + 32 + 32 * (k / 8) + 16 * (k % 2);
    const int shift = 2 * (k % 8 / 2);
    for (int l = 0; l < 16; ++l) {
      const int code = ((codes[l] >> shift) & 3) - (((high[l] >> (k / 2)) & 1) ? 0 : 4);
      *out++ = scale * static_cast<float>(code);
    }
  }
}

// Q4_K and Q5_K: sub-blocks of 32; a pair shares 32 bytes of nibbles.
template <bool kHasFifthBit>
void DecodeQ4KOr5K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* high = block + 16;
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMin sub = UnpackScaleAndMin(block + 4, s);
    const float scale = d * static_cast<float>(sub.scale);
    const float min = dmin * static_cast<float>(sub.min);
    const uint8_t* codes = block + (kHasFifthBit ? 48 : 16) + 32 * (s / 2);
    for (int l = 0; l < 32; ++l) {
      int code = s % 2 == 0 ? codes[l] & 15 : codes[l] >> 4;
      if (kHasFifthBit) code |= ((high[l] >> s) & 1) << 4;
      *out++ = scale * static_cast<float>(code) - min;
    }
  }
}

void DecodeQ6_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 208);
  for (int k = 0; k < 16; ++k) {  // sub-blocks of 16
    const int half = k / 8, quarter = k % 8 / 2, at = 16 * (k % 2);
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + k]));
    const uint8_t* low = block + 64 * half + 32 * (quarter % 2) + at;
    const uint8_t* high = block + 128 + 32 * half + at;
    for (int l = 0; l < 16; ++l) {
      const int code = (quarter < 2 ? low[l] & 15 : low[l] >> 4) | (((high[l] >> (2 * quarter)) & 3) << 4);
      *out++ = scale * static_cast<float>(code - 32);
    }
  }
}

void DecodeIQ4_XS(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const uint16_t scales_high = LoadU16(block + 2);
  for (int s = 0; s < 8; ++s) {  // sub-blocks of 32
    const int low = (block[4 + s / 2] >> (4 * (s % 2))) & 15;
    const int high = (scales_high >> (2 * s)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    const uint8_t* codes = block + 8 + 16 * s;
    for (int l = 0; l < 16; ++l) {
      out[l] = scale * static_cast<float>(kIq4Values[codes[l] & 15]);
      out[l + 16] = scale * static_cast<float>(kIq4Values[codes[l] >> 4]);
    }
    out += 32;
  }
}

void DecodeQ1_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int j = 0; j < 128; ++j) out[j] = ((block[2 + j / 8] >> (j % 8)) & 1) ? d : -d;
}

// Q2_0 and PQ2_0: four codes a byte, lowest bits first.
template <int kElements>
void DecodeQ2_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int j = 0; j < kElements; ++j) out[j] = d * static_cast<float>(((block[2 + j / 4] >> (2 * (j % 4))) & 3) - 1);
}

void DecodeQ2_0_Oxi(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 32);
  for (int j = 0; j < 128; ++j) {
    const int code = (block[j / 4] >> (2 * (j % 4))) & 3;
    out[j] = d * static_cast<float>(code == 3 ? 0 : code - 1);
  }
}

// Digit n of a byte of TQ1_0, -1 to 1: the byte is a fraction of 256, its base-3 digits are the codes. powers[n] = 3^n.
int Trit(uint8_t byte, int n) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  return ((((byte * kPowers[n]) & 255) * 3) >> 8) - 1;
}

void DecodeTQ1_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 52);
  const auto decode = [&](const uint8_t* bytes, int count, int digits) {
    for (int n = 0; n < digits; ++n) {
      for (int l = 0; l < count; ++l) *out++ = d * static_cast<float>(Trit(bytes[l], n));
    }
  };
  decode(block, 32, 5);
  decode(block + 32, 16, 5);
  decode(block + 48, 4, 4);
}

void DecodeTQ2_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 64);
  for (int k = 0; k < 8; ++k) {  // the codes of 32 elements lie at the same two bits of 32 bytes
    const uint8_t* codes = block + 32 * (k / 4);
    for (int l = 0; l < 32; ++l) *out++ = d * static_cast<float>(((codes[l] >> (2 * (k % 4))) & 3) - 1);
  }
}

using DecodeBlock = void (*)(const uint8_t* block, float* out);

// nullptr for the plain float types.
DecodeBlock BlockDecoder(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: return nullptr;
    case TensorType::kQ4_0: return DecodeQ4Or5<false, false>;
    case TensorType::kQ4_1: return DecodeQ4Or5<true, false>;
    case TensorType::kQ5_0: return DecodeQ4Or5<false, true>;
    case TensorType::kQ5_1: return DecodeQ4Or5<true, true>;
    case TensorType::kQ8_0: return DecodeQ8_0;
    case TensorType::kQ2_K: return DecodeQ2_K;
    case TensorType::kQ3_K: return DecodeQ3_K;
    case TensorType::kQ4_K: return DecodeQ4KOr5K<false>;
    case TensorType::kQ5_K: return DecodeQ4KOr5K<true>;
    case TensorType::kQ6_K: return DecodeQ6_K;
    case TensorType::kIQ4_NL: return DecodeIQ4_NL;
    case TensorType::kIQ4_XS: return DecodeIQ4_XS;
    case TensorType::kTQ1_0: return DecodeTQ1_0;
    case TensorType::kTQ2_0: return DecodeTQ2_0;
    case TensorType::kMXFP4: return DecodeMXFP4;
    case TensorType::kQ1_0: return DecodeQ1_0;
    case TensorType::kQ2_0: return DecodeQ2_0<64>;
    case TensorType::kPQ2_0: return DecodeQ2_0<128>;
    case TensorType::kQ2_0_Oxi: return DecodeQ2_0_Oxi;
  }
  CHECK(false);
}

}  // namespace

void DequantizeRow(TensorType type, const uint8_t* row, int64_t elements, float* out) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK_EQ(elements % info.block_elements, 0);
  if (type == TensorType::kF32) {
    if (elements > 0) std::memcpy(out, row, static_cast<size_t>(elements) * sizeof(float));
  } else if (type == TensorType::kF16) {
    for (int64_t i = 0; i < elements; ++i) out[i] = LoadHalf(row + 2 * i);
  } else if (type == TensorType::kBF16) {
    for (int64_t i = 0; i < elements; ++i) out[i] = Bf16ToFloat(LoadU16(row + 2 * i));
  } else {
    const DecodeBlock decode = BlockDecoder(type);
    for (int64_t i = 0; i < elements; i += info.block_elements, row += info.block_bytes) decode(row, out + i);
  }
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {  // infinity, or NaN with its payload; made quiet, as the hardware's conversion does
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal, a multiple of 2^-24
    // Adding 0.5 puts the unit in the last place of the sum at 2^-24, so the addition itself rounds to nearest even.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xfffu + odd;  // a carry out of the fraction raises the exponent, as it should
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN stays NaN, quiet
  const uint32_t odd = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
}

}  // namespace stagecoach
