#ifndef STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_
#define STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_

#include <cstdint>

namespace stagecoach {

// GGUF's ids of metadata value types, as stored.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF", little-endian
inline constexpr uint64_t kGgufHeaderBytes = 24;    // magic, version, two counts
inline constexpr uint32_t kGgufDefaultAlignment = 32;

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_
