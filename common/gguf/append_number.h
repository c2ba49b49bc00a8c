#ifndef STAGECOACH_COMMON_GGUF_APPEND_NUMBER_H_
#define STAGECOACH_COMMON_GGUF_APPEND_NUMBER_H_

#include <string>

namespace stagecoach {

// Appends a number as a GGUF header stores it: its bytes, little-endian like the machines we run on.
template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_APPEND_NUMBER_H_
