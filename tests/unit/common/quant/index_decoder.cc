#include "tests/unit/common/quant/index_decoder.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace stagecoach {
namespace {

double Half(const uint8_t* p) {
  const int bits = p[0] | (p[1] << 8);
  const double sign = (bits & 0x8000) ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

int Low(uint8_t byte) { return byte & 15; }
int High(uint8_t byte) { return byte >> 4; }
int Signed(uint8_t byte) { return byte < 128 ? byte : byte - 256; }
int Bit(const uint8_t* bytes, int n) { return (bytes[n / 8] >> (n % 8)) & 1; }

// Nibble j of 16 bytes: low ones first, then high ones.
int Nibble(const uint8_t* bytes, int j) { return j < 16 ? Low(bytes[j]) : High(bytes[j - 16]); }

double Iq4(int code) {
  static constexpr double kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kTable[code];
}

// E2M1: sign, two bits of exponent, one of fraction.
double E2m1(int code) {
  const int exponent = (code >> 1) & 3, fraction = code & 1;
  const double magnitude = exponent == 0 ? fraction * 0.5 : std::ldexp(2 + fraction, exponent - 2);
  return (code & 8) ? -magnitude : magnitude;
}

int Scale6(const uint8_t* sc, int s) { return s < 4 ? sc[s] & 63 : (sc[s + 4] & 15) | ((sc[s - 4] >> 6) << 4); }
int Min6(const uint8_t* sc, int s) { return s < 4 ? sc[s + 4] & 63 : (sc[s + 4] >> 4) | ((sc[s] >> 6) << 4); }

double Q2K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32;
  const int q = (b[16 + 32 * c + l] >> (2 * g)) & 3;
  return Half(b + 80) * Low(b[j / 16]) * q - Half(b + 82) * High(b[j / 16]);
}

double Q3K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32, k = j / 16;
  const int low = (b[32 + 32 * c + l] >> (2 * g)) & 3;
  const int high = (b[l] >> (4 * c + g)) & 1;
  const uint8_t* sc = b + 96;
  const int scale = (k < 8 ? Low(sc[k]) : High(sc[k - 8])) | (((sc[8 + k % 4] >> (2 * (k / 4))) & 3) << 4);
  return Half(b + 108) * (scale - 32) * (low - (high ? 0 : 4));
}

double Q4KOrQ5K(const uint8_t* b, int j, bool five) {
  const int s = j / 32, l = j % 32;
  const uint8_t byte = b[(five ? 48 : 16) + 32 * (s / 2) + l];
  const int code = (s % 2 ? High(byte) : Low(byte)) + (five ? 16 * ((b[16 + l] >> s) & 1) : 0);
  return Half(b) * Scale6(b + 4, s) * code - Half(b + 2) * Min6(b + 4, s);
}

double Q6K(const uint8_t* b, int j) {
  const int c = j / 128, g = (j % 128) / 32, l = j % 32;
  const uint8_t byte = b[64 * c + 32 * (g % 2) + l];
  const int code = (g >= 2 ? High(byte) : Low(byte)) | (((b[128 + 32 * c + l] >> (2 * g)) & 3) << 4);
  return Half(b + 208) * Signed(b[192 + j / 16]) * (code - 32);
}

double Iq4Xs(const uint8_t* b, int j) {
  const int s = j / 32, high = b[2] | (b[3] << 8);
  const int scale = ((b[4 + s / 2] >> (4 * (s % 2))) & 15) | (((high >> (2 * s)) & 3) << 4);
  return Half(b) * (scale - 32) * Iq4(Nibble(b + 8 + 16 * s, j % 32));
}

int Trit(uint8_t byte, int n) {
  const int power[5] = {1, 3, 9, 27, 81};
  return ((((byte * power[n]) % 256) * 3) / 256) - 1;
}

double Tq1(const uint8_t* b, int j) {
  int trit;
  if (j < 160) {
    trit = Trit(b[j % 32], j / 32);
  } else if (j < 240) {
    trit = Trit(b[32 + (j - 160) % 16], (j - 160) / 16);
  } else {
    trit = Trit(b[48 + (j - 240) % 4], (j - 240) / 4);
  }
  return Half(b + 52) * trit;
}

int TwoBits(const uint8_t* bytes, int j) { return (bytes[j / 4] >> (2 * (j % 4))) & 3; }

}  // namespace

double ElementOfBlock(TensorType type, const uint8_t* b, int j) {
  switch (type) {
    case TensorType::kF32: {
      float value;
      std::memcpy(&value, b, sizeof(value));
      return value;
    }
    case TensorType::kF16: return Half(b);
    case TensorType::kBF16: {
      const uint32_t bits = static_cast<uint32_t>(b[0] << 16) | (static_cast<uint32_t>(b[1]) << 24);
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
    case TensorType::kQ4_0: return Half(b) * (Nibble(b + 2, j) - 8);
    case TensorType::kQ4_1: return Half(b) * Nibble(b + 4, j) + Half(b + 2);
    case TensorType::kQ5_0: return Half(b) * (Nibble(b + 6, j) + 16 * Bit(b + 2, j) - 16);
    case TensorType::kQ5_1: return Half(b) * (Nibble(b + 8, j) + 16 * Bit(b + 4, j)) + Half(b + 2);
    case TensorType::kQ8_0: return Half(b) * Signed(b[2 + j]);
    case TensorType::kQ2_K: return Q2K(b, j);
    case TensorType::kQ3_K: return Q3K(b, j);
    case TensorType::kQ4_K: return Q4KOrQ5K(b, j, false);
    case TensorType::kQ5_K: return Q4KOrQ5K(b, j, true);
    case TensorType::kQ6_K: return Q6K(b, j);
    case TensorType::kIQ4_NL: return Half(b) * Iq4(Nibble(b + 2, j));
    case TensorType::kIQ4_XS: return Iq4Xs(b, j);
    case TensorType::kTQ1_0: return Tq1(b, j);
    case TensorType::kTQ2_0: return Half(b + 64) * (((b[32 * (j / 128) + j % 32] >> (2 * ((j % 128) / 32))) & 3) - 1);
    case TensorType::kMXFP4: return std::ldexp(E2m1(Nibble(b + 1, j)), b[0] - 127);
    case TensorType::kQ1_0: return Bit(b + 2, j) ? Half(b) : -Half(b);
    case TensorType::kQ2_0:
    case TensorType::kPQ2_0: return Half(b) * (TwoBits(b + 2, j) - 1);
    case TensorType::kQ2_0_Oxi: return TwoBits(b, j) == 3 ? 0 : Half(b + 32) * (TwoBits(b, j) - 1);
  }
  std::abort();
}

std::vector<float> DecodeByIndex(TensorType type, const uint8_t* row, int64_t elements) {
  const TensorTypeInfo& info = GetTensorType(type);
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    const uint8_t* block = row + i / info.block_elements * info.block_bytes;
    values[static_cast<size_t>(i)] =
        static_cast<float>(ElementOfBlock(type, block, static_cast<int>(i % info.block_elements)));
  }
  return values;
}

}  // namespace stagecoach
