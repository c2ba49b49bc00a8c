#ifndef STAGECOACH_COMMON_QUANT_BLOCK_CODES_H_
#define STAGECOACH_COMMON_QUANT_BLOCK_CODES_H_

// What several block formats share: byte access, places of scales, value tables of the non-linear 4-bit types, packed
// 6-bit scales.

#include <bit>
#include <cstdint>
#include <cstring>

#include "common/quant/tensor_type.h"

namespace stagecoach {

// The values of the 16 codes of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Twice the values of the 16 codes of MXFP4 (sign, two bits of exponent, one of fraction), so that they are whole.
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

inline void StoreU16(uint16_t bits, uint8_t* p) { std::memcpy(p, &bits, sizeof(bits)); }

inline float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }
inline void StoreHalf(float value, uint8_t* p) { StoreU16(FloatToHalf(value), p); }

// 2^(exponent - 128), half of what an E8M0 exponent means, because kMxfp4Values are doubled; subnormal for 0 and 1.
inline float HalvedE8M0(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23);
}

// The 6-bit scale and minimum of one sub-block of 32 elements of Q4_K and Q5_K.
struct ScaleAndMin {
  int scale;  // 0 to 63
  int min;    // 0 to 63
};

// Of sub-block s in 12 packed bytes. s < 4: the low 6 bits of bytes 0 to 3 (scales) and 4 to 7 (minima). Others: a
// nibble of bytes 8 to 11, and two high bits at the top of bytes 0 to 7.
inline ScaleAndMin UnpackScaleAndMin(const uint8_t* packed, int s) {
  if (s < 4) return {packed[s] & 63, packed[s + 4] & 63};
  return {(packed[s + 4] & 15) | ((packed[s - 4] >> 6) << 4), (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4)};
}

// Unpacks the 16 scales of Q3_K, 6 bits each and shifted by 32, of 12 packed bytes: a nibble of bytes 0 to 7 and two
// bits of bytes 8 to 11. k is 0 to 15, the result -32 to 31.
inline int UnpackQ3KScale(const uint8_t* packed, int k) {
  const int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;
  const int high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// Where a block has its scale and its minimum, both fp16. MXFP4's only scale is its first byte, an E8M0 exponent.
struct BlockScales {
  TensorType type;
  int scale_at;          // bytes into the block
  bool has_min = false;  // the minimum follows the scale
};

// All types of blocks but MXFP4.
inline constexpr BlockScales kBlockScales[] = {
    {TensorType::kQ8_0, 0},       {TensorType::kQ4_0, 0},       {TensorType::kQ4_1, 0, true},  {TensorType::kQ5_0, 0},
    {TensorType::kQ5_1, 0, true}, {TensorType::kIQ4_NL, 0},     {TensorType::kQ2_K, 80, true}, {TensorType::kQ3_K, 108},
    {TensorType::kQ4_K, 0, true}, {TensorType::kQ5_K, 0, true}, {TensorType::kQ6_K, 208},      {TensorType::kIQ4_XS, 0},
    {TensorType::kTQ1_0, 52},     {TensorType::kTQ2_0, 64},     {TensorType::kQ1_0, 0},        {TensorType::kQ2_0, 0},
    {TensorType::kPQ2_0, 0},      {TensorType::kQ2_0_Oxi, 32},
};

// nullptr for the plain float types and MXFP4.
constexpr const BlockScales* FindBlockScales(TensorType type) {
  for (const BlockScales& scales : kBlockScales) {
    if (scales.type == type) return &scales;
  }
  return nullptr;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_BLOCK_CODES_H_
