#ifndef STAGECOACH_COMMON_GRAMMAR_UTF8_PLACE_H_
#define STAGECOACH_COMMON_GRAMMAR_UTF8_PLACE_H_

#include <cstdint>

namespace stagecoach {

// A place in UTF-8 text (the Unicode Standard's table 3-7): how many bytes of a character are still to come, and which
// the next one may be.
struct Utf8Place {
  uint8_t to_come = 0;
  uint8_t first = 0x80, last = 0xBF;
  bool broken = false;  // it is no UTF-8; stays

  Utf8Place After(uint8_t byte) const {
    constexpr Utf8Place kBroken = {.broken = true};
    if (broken) return kBroken;
    if (to_come > 0) {
      if (byte < first || byte > last) return kBroken;
      return {.to_come = static_cast<uint8_t>(to_come - 1)};
    }
    if (byte < 0x80) return {};
    if (byte < 0xC2 || byte > 0xF4) return kBroken;
    if (byte < 0xE0) return {.to_come = 1};
    const auto or_else = [byte](uint8_t lead, uint8_t bound, uint8_t usual) { return byte == lead ? bound : usual; };
    if (byte < 0xF0) return {.to_come = 2, .first = or_else(0xE0, 0xA0, 0x80), .last = or_else(0xED, 0x9F, 0xBF)};
    return {.to_come = 3, .first = or_else(0xF0, 0x90, 0x80), .last = or_else(0xF4, 0x8F, 0xBF)};
  }
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_UTF8_PLACE_H_
