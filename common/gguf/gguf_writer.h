#ifndef STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_

// Writes GGUF files: of any size piece by piece, or built in memory for tests and tools.

#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_value_type.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

// Sets a key to a u32; a new key is appended.
void SetGgufRawU32(absl::string_view key, uint32_t value, std::vector<GgufRawEntry>* entries);

struct GgufStreamTensor {
  std::string name;
  std::vector<int64_t> dims;  // dims[0] is the row length
  uint32_t type_id = 0;       // a known id of at most 0xffff; decides the size with the dims
};

// Writes a file in any order, from many threads, under a temporary name; renamed when complete.
class GgufStreamWriter {
 public:
  // Creates the temporary file, writes the header and reserves the disk space. The alignment is general.alignment, else
  // 32. kResourceExhausted: no space; kNotFound: the directory is missing or not writable.
  static absl::StatusOr<std::unique_ptr<GgufStreamWriter>> Create(const std::string& path,
                                                                  absl::Span<const GgufRawEntry> metadata,
                                                                  absl::Span<const GgufStreamTensor> tensors);
  ~GgufStreamWriter();  // without Finish the temporary file is removed
  GgufStreamWriter(const GgufStreamWriter&) = delete;

  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t tensor_bytes(size_t tensor) const { return places_[tensor].bytes; }

  // Writes part of a tensor's data, `offset` bytes into it and within it (checked). Thread-safe.
  absl::Status Write(size_t tensor, uint64_t offset, absl::Span<const uint8_t> data);

  // Flushes the file to disk and renames it. Requires that every byte of every tensor was written (checked by count).
  // kAlreadyExists: a file has that name and may not be replaced.
  absl::Status Finish(bool replace);

 private:
  struct Place {
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
  };

  GgufStreamWriter(std::string path, std::string temporary_path, FileDescriptor file);
  std::string PlaceTensors(absl::Span<const GgufRawEntry> metadata, absl::Span<const GgufStreamTensor> tensors);
  absl::Status WriteAt(uint64_t offset, absl::Span<const uint8_t> data);
  absl::Status Failed(const char* what, int error) const;

  const std::string path_;
  const std::string temporary_path_;
  FileDescriptor file_;
  std::vector<Place> places_;
  uint64_t file_bytes_ = 0;
  uint64_t data_bytes_ = 0;                 // of all tensors, without the padding
  std::atomic<uint64_t> written_bytes_{0};  // of these, so far
  bool finished_ = false;
};

// Builds a file in memory. Not thread-safe.
class GgufWriter {
 public:
  // `version` is 2 or 3. An alignment other than the default is written as general.alignment.
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = kGgufDefaultAlignment);

  // Sets a key to a value of T's GGUF type: number, bool, std::string, or a vector of these. Old keys keep their place.
  template <typename T>
  void Set(const std::string& key, const T& value) {
    std::string bytes;
    Append(value, bytes);
    SetEntry(key, kGgufTypeOf<T>, std::move(bytes));
  }
  void Set(const std::string& key, const char* value) { Set(key, std::string(value)); }
  void Remove(const std::string& key);  // absent: nothing happens

  // Adds a tensor, or replaces the one of that name. dims[0] is the row length; `bytes` has the size that dims and type
  // imply (checked). Type ids above 0xffff are written as other programs know them (kQ2_0_Oxi as 42).
  void SetTensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type_id, std::string bytes);
  void RemoveTensor(const std::string& name);

  // As above; encodes floats (row after row) in one of the supported types.
  void SetTensor(const std::string& name, const std::vector<int64_t>& dims, TensorType type,
                 absl::Span<const float> values);

  std::string Serialize() const;  // the whole file
  absl::Status Write(const std::string& path) const;

  // Writes <prefix>-%05d-of-%05d.gguf with the tensors in order, evenly spread. The first file has all metadata, the
  // others only the split.* keys. Returns the paths.
  absl::StatusOr<std::vector<std::string>> WriteShards(const std::string& prefix, int shards) const;

 private:
  struct Tensor : GgufStreamTensor {
    std::string bytes;
  };

  template <typename T>
  static void Append(const T& value, std::string& out) {
    if constexpr (std::is_same_v<T, std::string>) {
      AppendString(value, &out);
    } else {
      static_assert(std::is_arithmetic_v<T> && static_cast<uint32_t>(kGgufTypeOf<T>) < std::size(kGgufValueTypes),
                    "no type of GGUF metadata");
      AppendNumber(value, &out);
    }
  }
  template <typename T>
  static void Append(const std::vector<T>& values, std::string& out) {
    AppendNumber(static_cast<uint32_t>(kGgufTypeOf<T>), &out);
    AppendNumber(uint64_t{values.size()}, &out);
    for (size_t i = 0; i < values.size(); ++i) Append(static_cast<const T&>(values[i]), out);
  }

  void SetEntry(const std::string& key, GgufValueType type, std::string bytes);
  std::string Serialize(absl::Span<const GgufRawEntry> entries, absl::Span<const Tensor> tensors) const;

  const uint32_t version_;
  const uint32_t alignment_;
  std::vector<GgufRawEntry> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_WRITER_H_
