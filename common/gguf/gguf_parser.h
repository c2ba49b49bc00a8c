#ifndef STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_

// Parses the header of one GGUF file: counts, metadata and tensor directory, checked against the file's size. Nothing
// is allocated for a count or a length before it is known to fit into what is left of the file.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/header_reader.h"
#include "common/gguf/q2_layout.h"

namespace stagecoach {

// What one file (one shard) holds.
struct GgufHeader {
  int version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;   // with absolute offsets; the shard number is the caller's to set
  std::vector<Q2Tensor> q2_tensors;  // those of type id 42, whose layout and size are still to be found; into `tensors`
  uint64_t header_bytes = 0;         // before the tensor data
  uint64_t header_hash = 0;          // of all of these
};

class GgufParser {
 public:
  // `path` is for messages.
  static absl::StatusOr<GgufHeader> Parse(const ByteSource& bytes, const std::string& path, uint64_t file_bytes);

 private:
  GgufParser(const ByteSource& bytes, const std::string& path, uint64_t file_bytes);

  absl::Status Run();
  absl::Status ParseCounts();
  absl::Status ParseMagic();  // says what the file is, where it is none of GGUF

  absl::Status ParseMetadata();
  absl::Status ParseEntry(uint64_t index);
  absl::StatusOr<GgufValue> ParseValue(absl::string_view field, uint32_t type);
  absl::StatusOr<bool> ParseBool(absl::string_view field);
  absl::StatusOr<GgufValue> ParseArray(absl::string_view field);
  absl::Status CheckAlignment(const GgufValue& value, uint32_t type);

  absl::Status ParseTensors();
  absl::StatusOr<GgufTensor> ParseTensor(uint64_t index);
  absl::Status ParseDims(const std::string& field, GgufTensor& tensor);
  absl::Status SetBytes(const std::string& field, GgufTensor& tensor);
  absl::Status PlaceTensors();
  absl::Status CheckOverlaps();  // and notes the room that tensors of type id 42 have

  template <typename Stored, typename Wide>
  absl::StatusOr<GgufValue> ParseNumber(absl::string_view field);
  template <typename Stored, typename Wide>
  absl::Status ParseNumbers(absl::string_view field, uint64_t count, GgufArray& array);

  HeaderReader reader_;
  uint64_t array_elements_ = 0;  // of all arrays so far: decoded they take more memory than in the file
  uint32_t alignment_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  GgufHeader header_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_
