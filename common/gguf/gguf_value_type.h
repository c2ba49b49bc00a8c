#ifndef STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_
#define STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_

// How a GGUF file stores things.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

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

struct GgufValueTypeInfo {
  const char* name;
  uint64_t element_bytes;  // that an element of an array takes at least; 0: there are no arrays of it
};
inline constexpr GgufValueTypeInfo kGgufValueTypes[] = {  // by id
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 8}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

template <typename... ById>
struct GgufTypeList {
  template <typename T>
  static constexpr GgufValueType Of() {
    uint32_t id = 0;
    static_cast<void>(((std::is_same_v<T, ById> || (++id, false)) || ...));
    return static_cast<GgufValueType>(id);
  }
  // Calls `visit` with a zero of the type of number that the id stands for; false for other ids.
  template <typename Visit>
  static bool VisitNumber(GgufValueType type, const Visit& visit) {
    const auto number = [&visit]<typename T>(std::type_identity<T>) {
      constexpr bool kNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
      if constexpr (kNumber) visit(T{});
      return kNumber;
    };
    uint32_t id = 0;
    return ((static_cast<uint32_t>(type) == id++ && number(std::type_identity<ById>())) || ...);
  }
};
using GgufTypes = GgufTypeList<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string, void,
                               uint64_t, int64_t, double>;

// The type of values that a T holds; of anything else an id that none has.
template <typename T>
inline constexpr GgufValueType kGgufTypeOf = GgufTypes::Of<T>();
template <typename T>
inline constexpr GgufValueType kGgufTypeOf<std::vector<T>> = GgufValueType::kArray;

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF", little-endian
inline constexpr uint64_t kGgufHeaderBytes = 24;    // magic, version, two counts
inline constexpr uint32_t kGgufDefaultAlignment = 32;

// Appends a number as a GGUF header stores it: its bytes, little-endian like the machines we run on.
template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline void AppendString(const std::string& text, std::string* out) {
  AppendNumber(uint64_t{text.size()}, out);
  *out += text;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_VALUE_TYPE_H_
