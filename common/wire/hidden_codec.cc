#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/wire/frame.h"

namespace stagecoach {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and its payloads are used in place");

namespace {

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // Rounding could carry a NaN's mantissa into infinity: a NaN is cut instead, and kept quiet.
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}

}  // namespace

void EncodeHidden(WireType type, const float* in, size_t count, uint8_t* out) {
  if (count == 0) return;
  if (type == WireType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = ToBf16(in[i]);
    std::memcpy(out + 2 * i, &half, sizeof half);
  }
}

void DecodeHidden(WireType type, const uint8_t* in, size_t count, float* out) {
  if (count == 0) return;
  if (type == WireType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof half);
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
}

}  // namespace stagecoach
