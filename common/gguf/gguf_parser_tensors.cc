// The tensor directory: the second half of a GGUF header.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/foreign_file.h"
#include "common/gguf/gguf_parser.h"
#include "common/gguf/q2_layout.h"
#include "common/gguf/utf8_name.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMaxNameBytes = 255;
constexpr uint32_t kMaxRank = 4;
constexpr uint32_t kLastFileTypeId = 0xffff;  // above are ids of ours, which no file holds

}  // namespace

absl::Status GgufParser::ParseTensors() {
  absl::flat_hash_set<std::string> names;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    ASSIGN_OR_RETURN(GgufTensor tensor, ParseTensor(i));
    if (!names.insert(tensor.name).second) {
      return reader_.Malformed("tensor '", tensor.name, "' appears twice: the second time as tensor ", i);
    }
    header_.tensors.push_back(std::move(tensor));
  }
  return PlaceTensors();
}

absl::StatusOr<GgufTensor> GgufParser::ParseTensor(uint64_t index) {
  GgufTensor tensor;
  const std::string name_field = absl::StrCat("name of tensor ", index);
  ASSIGN_OR_RETURN(tensor.name, reader_.ReadString(name_field, kMaxNameBytes));
  if (!IsValidGgufName(tensor.name)) {
    return reader_.Malformed(name_field, " is ", ShownText(tensor.name),
                             ", expected UTF-8 text that is not empty and has no control characters");
  }
  const std::string field = absl::StrCat("tensor '", tensor.name, "'");
  RETURN_IF_ERROR(ParseDims(field, tensor));
  ASSIGN_OR_RETURN(tensor.type_id, reader_.Read<uint32_t>(field));
  RETURN_IF_ERROR(SetBytes(field, tensor));
  ASSIGN_OR_RETURN(tensor.file_offset, reader_.Read<uint64_t>(field));  // relative until PlaceTensors
  if (tensor.file_offset % alignment_ != 0) {
    return reader_.Malformed(field, " has offset ", tensor.file_offset, ", expected a multiple of the alignment ",
                             alignment_);
  }
  return tensor;
}

absl::Status GgufParser::ParseDims(const std::string& field, GgufTensor& tensor) {
  ASSIGN_OR_RETURN(const uint32_t rank, reader_.Read<uint32_t>(field));
  if (rank > kMaxRank) return reader_.Malformed(field, " has ", rank, " dimensions, expected at most ", kMaxRank);
  int64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) {
    ASSIGN_OR_RETURN(const uint64_t size, reader_.Read<uint64_t>(field));
    if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return reader_.Malformed(field, " has dimension ", d, " of size ", size, ", expected 1 to ",
                               std::numeric_limits<int64_t>::max());
    }
    tensor.dims.push_back(static_cast<int64_t>(size));
    if (__builtin_mul_overflow(elements, tensor.dims.back(), &elements)) {
      return reader_.Malformed(field, " has more than ", std::numeric_limits<int64_t>::max(),
                               " elements: its dimension ", d, " is ", size);
    }
  }
  if (tensor.dims.empty()) tensor.dims.push_back(1);  // a scalar: missing dimensions count as 1
  return absl::OkStatus();
}

absl::Status GgufParser::SetBytes(const std::string& field, GgufTensor& tensor) {
  const TensorTypeInfo* type = FindTensorType(tensor.type_id);
  if (type == nullptr || type->id > kLastFileTypeId) {
    return absl::UnimplementedError(absl::StrCat("'", reader_.path(), "': ", field, " has type id ", tensor.type_id,
                                                 ", which is unknown or was removed from GGUF; supported types are ",
                                                 SupportedTensorTypes()));
  }
  if (tensor.cols() % type->block_elements != 0) {
    return reader_.Malformed(field, " has rows of ", tensor.cols(), " elements, expected a multiple of ",
                             type->block_elements, ", the block of its type ", type->name);
  }
  const uint64_t blocks =
      static_cast<uint64_t>(tensor.cols()) / type->block_elements * static_cast<uint64_t>(tensor.rows());
  if (tensor.type_id == kQ2TypeId) {  // the layout is found when all files of the model are open
    tensor.bytes = SmallestQ2Bytes(tensor.cols(), tensor.rows());
    if (tensor.bytes <= reader_.file_bytes()) return absl::OkStatus();
  }
  if (__builtin_mul_overflow(blocks, uint64_t{type->block_bytes}, &tensor.bytes) ||
      tensor.bytes > reader_.file_bytes()) {
    return reader_.Malformed(field, " has ", blocks, " blocks of ", type->block_bytes, " bytes, but the file has only ",
                             reader_.file_bytes(), " bytes");
  }
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  if (tensor_count_ == 0) return absl::OkStatus();
  const uint64_t past = reader_.position() % alignment_;
  RETURN_IF_ERROR(reader_.Skip("the padding before the tensor data", past == 0 ? 0 : alignment_ - past));
  const uint64_t data_start = reader_.position();
  const uint64_t data_bytes = reader_.remaining();
  for (GgufTensor& tensor : header_.tensors) {
    // Neither subtraction can wrap: the size was checked against the file, the offset is compared first.
    if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset) {
      return reader_.Malformed("tensor '", tensor.name, "' needs ", tensor.bytes, " bytes at offset ",
                               tensor.file_offset, " of the tensor data, but the file has only ", data_bytes,
                               " bytes of it; the file was cut short, copy it again", PartOfACutFile(reader_.path()));
    }
    tensor.file_offset += data_start;
  }
  return CheckOverlaps();
}

absl::Status GgufParser::CheckOverlaps() {
  std::vector<GgufTensor*> by_offset;
  by_offset.reserve(header_.tensors.size());
  for (GgufTensor& tensor : header_.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->file_offset < b->file_offset; });
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i];
    const bool last = i + 1 == by_offset.size();
    const uint64_t end = last ? reader_.file_bytes() : by_offset[i + 1]->file_offset;
    if (before.file_offset + before.bytes > end) {  // not for the last: PlaceTensors has checked it
      return reader_.Malformed("tensor '", by_offset[i + 1]->name, "' starts at file offset ", end, ", but tensor '",
                               before.name, "' ends only at ", before.file_offset + before.bytes);
    }
    if (before.type_id == kQ2TypeId) header_.q2_tensors.push_back({by_offset[i], end - before.file_offset, alignment_});
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
