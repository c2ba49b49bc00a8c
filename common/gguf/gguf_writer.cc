#include "common/gguf/gguf_writer.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_shards.h"

namespace stagecoach {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", contents.size(), " bytes to '", path, "'"));
  return absl::OkStatus();
}

int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t elements = 1;
  for (int64_t size : dims) elements *= size;
  return elements;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t version, uint32_t alignment) : version_(version), alignment_(alignment) {
  if (alignment != kGgufDefaultAlignment) Set("general.alignment", alignment);
}

void GgufWriter::SetEntry(const std::string& key, GgufValueType type, std::string bytes) {
  Entry entry{key, type, std::move(bytes)};
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found != entries_.end()) {
    *found = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

void GgufWriter::Remove(const std::string& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

void GgufWriter::SetTensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type_id,
                           std::string bytes) {
  const TensorTypeInfo* type = FindTensorType(type_id);
  CHECK(type != nullptr && !dims.empty());
  CHECK_EQ(dims[0] % type->block_elements, 0);
  CHECK_EQ(bytes.size(), static_cast<size_t>(Elements(dims)) / type->block_elements * type->block_bytes);
  Tensor tensor{name, dims, type_id, std::move(bytes)};
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  if (found != tensors_.end()) {
    *found = std::move(tensor);
  } else {
    tensors_.push_back(std::move(tensor));
  }
}

void GgufWriter::SetTensor(const std::string& name, const std::vector<int64_t>& dims, TensorType type,
                           absl::Span<const float> values) {
  const int64_t elements = Elements(dims);
  CHECK_EQ(static_cast<int64_t>(values.size()), elements);
  CHECK_EQ(dims[0] % GetTensorType(type).block_elements, 0);
  std::string bytes(RowBytes(type, elements), '\0');
  QuantizeRow(type, values.data(), elements, reinterpret_cast<uint8_t*>(bytes.data()));
  SetTensor(name, dims, static_cast<uint32_t>(type), std::move(bytes));
}

void GgufWriter::RemoveTensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Serialize() const { return Serialize(entries_, tensors_); }

std::string GgufWriter::Serialize(absl::Span<const Entry> entries, absl::Span<const Tensor> tensors) const {
  std::string out;
  Append(kGgufMagic, out);
  Append(version_, out);
  Append(uint64_t{tensors.size()}, out);
  Append(uint64_t{entries.size()}, out);
  for (const Entry& entry : entries) {
    Append(entry.key, out);
    Append(static_cast<uint32_t>(entry.type), out);
    out += entry.bytes;
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    Append(tensor.name, out);
    Append(static_cast<uint32_t>(tensor.dims.size()), out);
    for (int64_t size : tensor.dims) Append(size, out);
    Append(tensor.type_id & 0xffff, out);  // an id of ours is written as the one it stands for in files
    Append(offset, out);
    offset += RoundUp(tensor.bytes.size(), alignment_);
  }
  if (tensors.empty()) return out;
  out.reserve(RoundUp(out.size(), alignment_) + offset);
  out.resize(RoundUp(out.size(), alignment_));
  for (const Tensor& tensor : tensors) {
    out += tensor.bytes;
    out.resize(RoundUp(out.size(), alignment_));
  }
  return out;
}

absl::Status GgufWriter::Write(const std::string& path) const { return WriteFile(path, Serialize()); }

absl::StatusOr<std::vector<std::string>> GgufWriter::WriteShards(const std::string& prefix, int shards) const {
  CHECK_GT(shards, 0);
  std::vector<std::string> paths;
  const absl::Span<const Tensor> tensors = tensors_;
  for (int i = 0; i < shards; ++i) {
    GgufWriter keys(version_, alignment_);
    if (i == 0) keys.entries_ = entries_;
    keys.Set("split.no", static_cast<uint16_t>(i));
    keys.Set("split.count", static_cast<uint16_t>(shards));
    keys.Set("split.tensors.count", static_cast<int32_t>(tensors.size()));
    const size_t first = tensors.size() * i / shards;
    const size_t last = tensors.size() * (i + 1) / shards;
    paths.push_back(GgufShardPath(prefix, i, shards));
    RETURN_IF_ERROR(WriteFile(paths.back(), Serialize(keys.entries_, tensors.subspan(first, last - first))));
  }
  return paths;
}

}  // namespace stagecoach
