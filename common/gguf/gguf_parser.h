#ifndef STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_

// Parses the header of one GGUF file: counts, metadata and tensor directory, checked against the file's size. Nothing
// is allocated for a count or length before it is known to fit into the rest of the file.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach {

inline constexpr uint32_t kQ2TypeId = 42;

// The smallest size of a tensor of type id 42 with rows of `cols` elements, a multiple of 64.
uint64_t SmallestQ2Bytes(int64_t cols, int64_t rows);

// A tensor with type id 42 in its file.
struct Q2Tensor {
  GgufTensor* tensor;
  uint64_t room;       // bytes from its start to the next tensor's, or to the end of the file
  uint64_t alignment;  // of the file
};
using Q2Reader = std::function<absl::Status(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out)>;

// Sets type_id and bytes of all these tensors of one model to the wanted layout, or to the one that is found.
// kInvalidArgument, with a tensor and the size in each layout: it does not fit, none or several do, or tensors differ.
absl::Status SetQ2Layout(Q2Layout wanted, const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                         const Q2Reader& read);

// What people give instead of a GGUF file, by its first bytes: pointers and pages from a failed download, models in
// other formats, archives, texts. For messages: "<what it is>; <what to do>".

inline constexpr uint64_t kForeignBytes = 512;  // that are looked at

// `begin`: the first kForeignBytes of the file, or all of it, without GGUF's magic. `path`: its name may say a part.
// Pure.
std::string DescribeForeignFile(absl::string_view path, absl::string_view begin, uint64_t file_bytes);

// " (its name ...)" for a name such as model.gguf.part2of3 of a file that ends too early; otherwise empty. Pure.
std::string PartOfACutFile(absl::string_view path);

// Names the GGUF file in the directory to give instead.
std::string DescribeDirectory(const std::string& path);

// What one file (one shard) holds.
struct GgufHeader {
  int version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;   // with absolute offsets; the shard number is the caller's to set
  std::vector<Q2Tensor> q2_tensors;  // those of type id 42, whose layout and size are still to be found; into `tensors`
  uint64_t header_bytes = 0;         // before the tensor data
  uint64_t header_hash = 0;          // of all of these
};

// `path` is for messages.
absl::StatusOr<GgufHeader> ParseGgufHeader(const ByteSource& bytes, const std::string& path, uint64_t file_bytes);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_
