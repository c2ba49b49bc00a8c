#ifndef STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_

// Builds a GGUF file in memory and writes it; for tests and tools. Not thread-safe.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_value_type.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

class GgufWriter {
 public:
  // `version` is 2 or 3. An alignment other than the default is written as general.alignment.
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = kGgufDefaultAlignment);

  // Sets a key to a value of exactly T's GGUF type: a number, bool, std::string, or a vector of one of these. A key
  // that is already there keeps its place and gets the new value.
  template <typename T>
  void Set(const std::string& key, const T& value) {
    std::string bytes;
    Append(value, bytes);
    SetEntry(key, TypeOf<T>(), std::move(bytes));
  }
  void Set(const std::string& key, const char* value) { Set(key, std::string(value)); }
  void Remove(const std::string& key);  // absent: nothing happens

  // Adds a tensor, or replaces the one of that name. dims[0] is the row length; `bytes` is its data and has the size
  // that dims and type imply (checked). The type id may be any known one; those
  // above 0xffff are written as what other programs give them (kQ2_0_Oxi as 42).
  void SetTensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type_id, std::string bytes);
  void RemoveTensor(const std::string& name);

  // As above; encodes floats (row after row) in one of the supported types.
  void SetTensor(const std::string& name, const std::vector<int64_t>& dims, TensorType type,
                 absl::Span<const float> values);

  std::string Serialize() const;  // the whole file
  absl::Status Write(const std::string& path) const;

  // Writes <prefix>-%05d-of-%05d.gguf, tensors in order and evenly spread; the first file has all metadata, the others
  // only the split.* keys. Returns the paths.
  absl::StatusOr<std::vector<std::string>> WriteShards(const std::string& prefix, int shards) const;

 private:
  struct Entry {
    std::string key;
    GgufValueType type;
    std::string bytes;
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;
    uint32_t type_id;
    std::string bytes;
  };

  template <typename T>
  static constexpr GgufValueType TypeOf();
  template <typename T>
  static void Append(const T& value, std::string& out);
  template <typename T>
  static void Append(const std::vector<T>& values, std::string& out);

  void SetEntry(const std::string& key, GgufValueType type, std::string bytes);
  std::string Serialize(absl::Span<const Entry> entries, absl::Span<const Tensor> tensors) const;

  const uint32_t version_;
  const uint32_t alignment_;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
};

namespace internal {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

}  // namespace internal

template <typename T>
constexpr GgufValueType GgufWriter::TypeOf() {
  if constexpr (internal::IsVector<T>::value)
    return GgufValueType::kArray;
  else if constexpr (std::is_same_v<T, bool>)
    return GgufValueType::kBool;
  else if constexpr (std::is_same_v<T, std::string>)
    return GgufValueType::kString;
  else if constexpr (std::is_same_v<T, float>)
    return GgufValueType::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return GgufValueType::kF64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return GgufValueType::kU8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return GgufValueType::kI8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return GgufValueType::kU16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return GgufValueType::kI16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return GgufValueType::kU32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return GgufValueType::kI32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return GgufValueType::kU64;
  else {
    static_assert(std::is_same_v<T, int64_t>, "not a GGUF metadata type");
    return GgufValueType::kI64;
  }
}

template <typename T>
void GgufWriter::Append(const T& value, std::string& out) {
  if constexpr (std::is_same_v<T, std::string>) {
    Append(uint64_t{value.size()}, out);
    out += value;
  } else {
    static_assert(std::is_arithmetic_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

template <typename T>
void GgufWriter::Append(const std::vector<T>& values, std::string& out) {
  Append(static_cast<uint32_t>(TypeOf<T>()), out);
  Append(uint64_t{values.size()}, out);
  for (size_t i = 0; i < values.size(); ++i) Append(static_cast<const T&>(values[i]), out);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_
