#ifndef STAGECOACH_COMMON_BASE_CRC32C_H_
#define STAGECOACH_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

// CRC-32C (Castagnoli), reflected, initial value and final xor 0xffffffff. Detects every difference within 32 adjacent
// bits of two spans of equal length. Thread-safe.
uint32_t Crc32c(absl::Span<const uint8_t> bytes);

// Continues `crc` over more bytes; the CRC of no bytes is 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const uint8_t> bytes);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CRC32C_H_
