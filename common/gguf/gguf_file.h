#ifndef STAGECOACH_COMMON_GGUF_GGUF_FILE_H_
#define STAGECOACH_COMMON_GGUF_GGUF_FILE_H_

// Reader of GGUF files, versions 2 and 3. Safe on hostile input: every count, length, offset and size is checked
// against the file before anything is allocated or read; bytes from another host (OpenSources) too. Tensor data is read
// by pread, so a file cut while in use gives an error, never a signal.
//
//   kNotFound           no such file
//   kInvalidArgument    malformed; the message names the file, the field and both values
//   kUnimplemented      an unsupported type or version
//   kDataLoss           the file changed or shrank after it was opened

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_value_type.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {

// GGUF's type id 42 stands for three layouts, and no key says which. The room of a tensor in its file tells blocks of
// 64 weights from blocks of 128. For the latter, keys of OxiBonsai alone, or some blocks, tell where the scale is.
enum class Q2Layout {
  kAuto,     // find out
  kG64,      // llama.cpp: 64 weights in 18 bytes, scale first (TensorType::kQ2_0)
  kG128,     // PrismML's files: 128 weights in 34 bytes, scale first (kPQ2_0)
  kG128Oxi,  // OxiBonsai: 128 weights in 34 bytes, scale last (kQ2_0_Oxi)
};

// "auto" (or nothing), "g64", "g128", "g128-oxi". kInvalidArgument for another name.
absl::StatusOr<Q2Layout> ParseQ2Layout(absl::string_view name);
const char* Q2LayoutName(Q2Layout layout);  // as above

// The layout of a tensor with this TensorType id; kAuto for types that are none of the three.
Q2Layout Q2LayoutOf(uint32_t type_id);

// One metadata value. Integers are widened to uint64_t or int64_t, floats to double; `element_type` is as stored.
struct GgufArray {
  uint32_t element_type = 0;  // GGUF value type id, never 9 (nested arrays are refused)
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>>
      values;
  size_t size() const;
};
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray>;

// An entry as stored, for copying it to another file: other programs insist on the width that a key has always had.
struct GgufRawEntry {
  std::string key;
  GgufValueType type = GgufValueType::kU32;
  std::string bytes;  // the value; an array's begin with the type of its elements and their count
};

// The metadata of a file. Getters: kNotFound for an absent key, kInvalidArgument for another type, with file and key.
class GgufMetadata {
 public:
  bool Has(absl::string_view key) const;
  const GgufValue* Find(absl::string_view key) const;  // nullptr when absent

  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<int64_t> GetInt(absl::string_view key) const;   // any integer type whose value fits
  absl::StatusOr<double> GetFloat(absl::string_view key) const;  // f32 or f64, finite
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<std::vector<std::string>> GetStrings(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloats(absl::string_view key) const;  // f32 arrays only

  // With a default for an absent key; a key of the wrong type is still an error.
  absl::StatusOr<int64_t> GetIntOr(absl::string_view key, int64_t fallback) const {
    return Has(key) ? GetInt(key) : fallback;
  }
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool fallback) const {
    return Has(key) ? GetBool(key) : fallback;
  }
  absl::StatusOr<std::string> GetStringOr(absl::string_view key, absl::string_view fallback) const {
    return Has(key) ? GetString(key) : std::string(fallback);
  }

  // In file order, for display.
  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }
  const std::string& path() const { return path_; }

 private:
  friend class DummyModel;
  friend class GgufFile;
  friend class GgufParser;
  struct Place {  // of a value in its file
    GgufValueType type;
    uint64_t offset, bytes;
  };
  std::string path_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::vector<Place> places_;  // of the entries
  absl::flat_hash_map<std::string, size_t> index_;
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> dims;  // as stored: dims[0] is the contiguous one, the row length; 1 to 4 of them, each >= 1
  uint32_t type_id = 0;       // a known TensorType, possibly one we have no kernels for; for id 42 the layout found
  int shard = 0;              // which file of the model holds it
  uint64_t file_offset = 0;   // absolute, within that file
  uint64_t bytes = 0;

  int64_t cols() const { return dims[0]; }  // row length
  int64_t rows() const;                     // product of the other dimensions
  uint64_t elements() const { return static_cast<uint64_t>(rows()) * static_cast<uint64_t>(cols()); }
};

// The layer of a tensor called "blk.<layer>.<...>"; -1 of another.
int64_t LayerOfTensor(absl::string_view name);

struct GgufOpenOptions {
  Q2Layout q2_layout = Q2Layout::kAuto;  // of tensors that the file gives the type id 42
};

// One file of a model that is elsewhere.
struct GgufSource {
  std::string path;  // there; for messages and for GgufFile::path
  FileFingerprint fingerprint;
  std::unique_ptr<const ByteSource> bytes;
};

class DummyModel;
struct GgufShard;

// A model: one file, all shards of one (<prefix>-00001-of-0000N.gguf; any of them may be given, the first holds the
// metadata), or no file at all (dummy_model.h). Immutable and thread-safe once opened.
class GgufFile {
 public:
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path, const GgufOpenOptions& options = {});
  // Opens a model from all its files in order, at least one. kDataLoss: a header does not match its fingerprint. Blocks
  // of tensors are read only with the layout kAuto; otherwise only headers are.
  static absl::StatusOr<std::unique_ptr<GgufFile>> OpenSources(std::vector<GgufSource> sources,
                                                               const GgufOpenOptions& options = {});
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }  // of the first shard, as an absolute path; dummy://...
  int version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // of all shards, in file order
  const GgufTensor* FindTensor(absl::string_view name) const;          // nullptr when absent
  const std::vector<std::string>& shard_paths() const { return shard_paths_; }
  const std::vector<FileFingerprint>& fingerprints() const { return fingerprints_; }  // one a shard

  // Fills `out` from `offset` bytes into the tensor's data. kDataLoss: the file has become shorter. Thread-safe.
  absl::Status Read(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const;
  uint64_t bytes_read() const { return bytes_read_; }  // tensor data bytes read through Read so far
  void Discard(const GgufTensor& tensor) const;        // as ByteSource::Discard

  // The entries of the file with the metadata, in file order; the model has files.
  absl::StatusOr<std::vector<GgufRawEntry>> ReadRawMetadata() const;

  // For serving the model to other hosts. A model without files has no bytes to serve.
  bool has_files() const { return dummy_ == nullptr; }
  // Bytes that opening each shard reads: from its start, the header in whole chunks.
  const std::vector<uint64_t>& opened_bytes() const { return opened_bytes_; }
  Q2Layout q2_layout() const;  // that tensors of type id 42 were found to have; kAuto without such tensors
  // Any bytes of a shard, within its size. Otherwise as Read, but not counted in bytes_read().
  absl::Status ReadShard(int shard, uint64_t offset, absl::Span<uint8_t> out) const;

 private:
  GgufFile();
  static absl::StatusOr<std::unique_ptr<GgufFile>> OpenDummy(const std::string& path);
  static absl::StatusOr<std::unique_ptr<GgufFile>> FromShards(std::vector<GgufShard> shards,
                                                              const GgufOpenOptions& options);

  std::unique_ptr<const DummyModel> dummy_;  // in place of shard_bytes_
  std::string path_;
  int version_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> tensor_index_;
  std::vector<std::string> shard_paths_;
  std::vector<std::unique_ptr<const ByteSource>> shard_bytes_;
  std::vector<uint64_t> opened_bytes_;
  std::vector<FileFingerprint> fingerprints_;
  mutable std::atomic<uint64_t> bytes_read_{0};
};

// The name of shard `index` (from 0) of `count`.
std::string GgufShardPath(const std::string& prefix, int index, int count);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_FILE_H_
