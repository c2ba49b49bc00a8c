#ifndef STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_
#define STAGECOACH_COMMON_GGUF_GGUF_PARSER_H_

// Parses the header of one GGUF file: counts, metadata and tensor directory, checked against the file's size. Nothing
// is allocated for a count or a length before it is known to fit into what is left of the file.

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

// The least that a tensor of type id 42 with rows of `cols` elements may take; cols is a multiple of 64.
uint64_t SmallestQ2Bytes(int64_t cols, int64_t rows);

// A tensor that its file gives the type id 42.
struct Q2Tensor {
  GgufTensor* tensor;
  uint64_t room;       // bytes from its start to the next tensor's, or to the end of the file
  uint64_t alignment;  // of the file
};
using Q2Reader = std::function<absl::Status(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out)>;

// Gives all these tensors, which belong to one model, the type_id and the bytes of the layout that is wanted, or that
// is found. kInvalidArgument, with the tensor and what each layout would take, when the layout does not fit, when none
// or more than one does, or when tensors differ.
absl::Status SetQ2Layout(Q2Layout wanted, const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                         const Q2Reader& read);

// What people give in place of a GGUF file, by how it begins: pointers and pages that a download
// left, models in other formats, archives. For messages: "<what it is>; <what to do>".

inline constexpr uint64_t kForeignBytes = 512;  // that are looked at

// `begin`: the first kForeignBytes of the file, or all of it; they do not begin with GGUF's magic. `path`: its name may
// say that it is a part. Pure.
std::string DescribeForeignFile(absl::string_view path, absl::string_view begin, uint64_t file_bytes);

// " (its name ...)", what a name such as model.gguf.part2of3 says of a file that does not end as its header wants;
// empty for other names. Pure.
std::string PartOfACutFile(absl::string_view path);

// Looks into the directory for the file that is meant.
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
