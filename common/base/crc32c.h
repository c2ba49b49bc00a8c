#ifndef STAGECOACH_COMMON_BASE_CRC32C_H_
#define STAGECOACH_COMMON_BASE_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

// CRC-32C (Castagnoli), reflected, initial value and final xor 0xffffffff. Of two spans of one length that differ in no
// more than 32 bits that stand together it is never the same. Thread-safe.
uint32_t Crc32c(absl::Span<const uint8_t> bytes);

// Of all that `crc` is of, with `bytes` behind it; 0 is of nothing.
uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const uint8_t> bytes);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_CRC32C_H_
