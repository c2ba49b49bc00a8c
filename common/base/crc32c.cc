#include "common/base/crc32c.h"

#include <array>
#include <cstring>

namespace stagecoach {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;  // Castagnoli's, RFC 3720 appendix B

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the effect of byte b followed by k zero bytes ("slicing by 8", Kounavis and Berry 2005).
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32c(absl::Span<const uint8_t> bytes) { return ExtendCrc32c(0, bytes); }

uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const uint8_t> bytes) {
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  crc ^= 0xffffffff;
  for (; left >= 8; left -= 8, p += 8) {
    uint32_t low;
    std::memcpy(&low, p, sizeof low);
    low ^= crc;
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^ kTables[0][p[7]];
  }
  for (; left > 0; --left, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return crc ^ 0xffffffff;
}

}  // namespace stagecoach
