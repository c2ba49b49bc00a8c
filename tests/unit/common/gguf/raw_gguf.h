#ifndef STAGECOACH_TESTS_UNIT_GGUF_RAW_GGUF_H_
#define STAGECOACH_TESTS_UNIT_GGUF_RAW_GGUF_H_

// Bytes of GGUF files written piece by piece, so that a test can write what no writer should.

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/gguf_value_type.h"

namespace stagecoach::testing {

class RawGguf {
 public:
  // Magic, version and the two counts.
  RawGguf(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    U32(kGgufMagic).U32(version).U64(tensors).U64(entries);
  }

  RawGguf& U8(uint8_t value) { return Number(value); }
  RawGguf& U32(uint32_t value) { return Number(value); }
  RawGguf& U64(uint64_t value) { return Number(value); }
  RawGguf& F32(float value) { return Number(value); }
  RawGguf& String(const std::string& text) {
    U64(text.size());
    bytes_ += text;
    return *this;
  }
  RawGguf& Zeros(size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }

  RawGguf& Key(const std::string& key, GgufValueType type) { return String(key).U32(static_cast<uint32_t>(type)); }
  RawGguf& U32Entry(const std::string& key, uint32_t value) { return Key(key, GgufValueType::kU32).U32(value); }
  RawGguf& ArrayStart(const std::string& key, uint32_t element_type, uint64_t count) {
    return Key(key, GgufValueType::kArray).U32(element_type).U64(count);
  }
  RawGguf& Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    String(name).U32(static_cast<uint32_t>(dims.size()));
    for (uint64_t size : dims) U64(size);
    return U32(type).U64(offset);
  }
  RawGguf& Align(size_t alignment = 32) { return Zeros((alignment - bytes_.size() % alignment) % alignment); }

  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  RawGguf& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }

  std::string bytes_;
};

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_GGUF_RAW_GGUF_H_
