#include "common/gguf/gguf_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

uint64_t DataBytes(const GgufStreamTensor& tensor) {
  const TensorTypeInfo* type = FindTensorType(tensor.type_id);
  CHECK(type != nullptr && !tensor.dims.empty());
  CHECK_EQ(tensor.dims[0] % type->block_elements, 0);
  uint64_t bytes = static_cast<uint64_t>(tensor.dims[0]) / type->block_elements * type->block_bytes;
  for (size_t i = 1; i < tensor.dims.size(); ++i) bytes *= static_cast<uint64_t>(tensor.dims[i]);
  return bytes;
}

uint32_t Alignment(absl::Span<const GgufRawEntry> metadata) {
  for (const GgufRawEntry& entry : metadata) {
    if (entry.key != "general.alignment" || entry.bytes.size() != sizeof(uint32_t)) continue;
    uint32_t alignment;
    std::memcpy(&alignment, entry.bytes.data(), sizeof(alignment));
    CHECK(alignment != 0);
    return alignment;
  }
  return kGgufDefaultAlignment;
}

// The header of a file. Appends each tensor's offset from the beginning of the data to `offsets`, then the end.
std::string Header(uint32_t version, absl::Span<const GgufRawEntry> metadata,
                   absl::Span<const GgufStreamTensor> tensors, uint32_t alignment, std::vector<uint64_t>* offsets) {
  std::string header;
  AppendNumber(kGgufMagic, &header);
  AppendNumber(version, &header);
  AppendNumber(uint64_t{tensors.size()}, &header);
  AppendNumber(uint64_t{metadata.size()}, &header);
  for (const GgufRawEntry& entry : metadata) {
    AppendString(entry.key, &header);
    AppendNumber(static_cast<uint32_t>(entry.type), &header);
    header += entry.bytes;
  }
  uint64_t offset = 0;
  for (const GgufStreamTensor& tensor : tensors) {
    AppendString(tensor.name, &header);
    AppendNumber(static_cast<uint32_t>(tensor.dims.size()), &header);
    for (int64_t size : tensor.dims) AppendNumber(size, &header);
    AppendNumber(tensor.type_id & 0xffff, &header);  // an id of ours is written as the one it stands for in files
    AppendNumber(offset, &header);
    offsets->push_back(offset);
    offset += RoundUp(DataBytes(tensor), alignment);
  }
  offsets->push_back(offset);
  return header;
}

// Replaces the entry or tensor of that name, or appends it.
template <typename T>
void SetNamed(std::string T::*name, T value, std::vector<T>* all) {
  const auto found = std::find_if(all->begin(), all->end(), [&](const T& one) { return one.*name == value.*name; });
  if (found != all->end()) {
    *found = std::move(value);
  } else {
    all->push_back(std::move(value));
  }
}

}  // namespace

void SetGgufRawU32(absl::string_view key, uint32_t value, std::vector<GgufRawEntry>* entries) {
  GgufRawEntry entry{std::string(key), GgufValueType::kU32, {}};
  AppendNumber(value, &entry.bytes);
  SetNamed(&GgufRawEntry::key, std::move(entry), entries);
}

absl::StatusOr<std::unique_ptr<GgufStreamWriter>> GgufStreamWriter::Create(const std::string& path,
                                                                           absl::Span<const GgufRawEntry> metadata,
                                                                           absl::Span<const GgufStreamTensor> tensors) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".partial");
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    return absl::NotFoundError(absl::StrCat("cannot create '", temporary, "': ", std::strerror(errno)));
  }
  std::unique_ptr<GgufStreamWriter> writer(new GgufStreamWriter(path, temporary, std::move(file)));
  const std::string header = writer->PlaceTensors(metadata, tensors);
  // Missing space shows now, not after an hour's work. Not every file system can reserve it.
  if (fallocate(writer->file_.get(), 0, 0, static_cast<off_t>(writer->file_bytes_)) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) return writer->Failed("reserve space for", errno);
    if (ftruncate(writer->file_.get(), static_cast<off_t>(writer->file_bytes_)) != 0) {
      return writer->Failed("set the size of", errno);
    }
  }
  RETURN_IF_ERROR(writer->WriteAt(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  return writer;
}

GgufStreamWriter::GgufStreamWriter(std::string path, std::string temporary_path, FileDescriptor file)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), file_(std::move(file)) {}

GgufStreamWriter::~GgufStreamWriter() {
  if (!finished_) unlink(temporary_path_.c_str());
}

// Decides where everything lies and returns the header.
std::string GgufStreamWriter::PlaceTensors(absl::Span<const GgufRawEntry> metadata,
                                           absl::Span<const GgufStreamTensor> tensors) {
  const uint32_t alignment = Alignment(metadata);
  std::vector<uint64_t> offsets;
  std::string header = Header(3, metadata, tensors, alignment, &offsets);
  const uint64_t data_at = tensors.empty() ? header.size() : RoundUp(header.size(), alignment);
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHECK_LE(tensors[i].type_id, 0xffffu);
    places_.push_back({data_at + offsets[i], DataBytes(tensors[i])});
    data_bytes_ += places_.back().bytes;
  }
  file_bytes_ = data_at + offsets.back();
  return header;
}

absl::Status GgufStreamWriter::Failed(const char* what, int error) const {
  const std::string message = absl::StrCat("cannot ", what, " '", temporary_path_, "' (", file_bytes_,
                                           " bytes, to become '", path_, "'): ", std::strerror(error));
  const bool no_space = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return no_space ? absl::ResourceExhaustedError(message) : absl::NotFoundError(message);
}

absl::Status GgufStreamWriter::WriteAt(uint64_t offset, absl::Span<const uint8_t> data) {
  const int error = PwriteFully(file_.get(), offset, data);
  return error == 0 ? absl::OkStatus() : Failed("write", error);
}

absl::Status GgufStreamWriter::Write(size_t tensor, uint64_t offset, absl::Span<const uint8_t> data) {
  const Place& place = places_[tensor];
  CHECK(offset <= place.bytes && data.size() <= place.bytes - offset);
  RETURN_IF_ERROR(WriteAt(place.file_offset + offset, data));
  written_bytes_.fetch_add(data.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status GgufStreamWriter::Finish(bool replace) {
  CHECK_EQ(written_bytes_.load(), data_bytes_);
  // Network file systems may report only now that the disk is full.
  if (fsync(file_.get()) != 0) return Failed("flush", errno);
  if (close(file_.Release()) != 0) return Failed("close", errno);
  struct stat status;
  if (!replace && lstat(path_.c_str(), &status) == 0) {
    return absl::AlreadyExistsError(absl::StrCat("'", path_, "' has come into being meanwhile; it was left as it is"));
  }
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) return Failed("rename", errno);
  finished_ = true;
  return absl::OkStatus();
}

GgufWriter::GgufWriter(uint32_t version, uint32_t alignment) : version_(version), alignment_(alignment) {
  if (alignment != kGgufDefaultAlignment) Set("general.alignment", alignment);
}

void GgufWriter::SetEntry(const std::string& key, GgufValueType type, std::string bytes) {
  SetNamed(&GgufRawEntry::key, {key, type, std::move(bytes)}, &entries_);
}

void GgufWriter::Remove(const std::string& key) {
  std::erase_if(entries_, [&](const GgufRawEntry& entry) { return entry.key == key; });
}

void GgufWriter::SetTensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type_id,
                           std::string bytes) {
  Tensor tensor{{name, dims, type_id}, std::move(bytes)};
  CHECK_EQ(tensor.bytes.size(), DataBytes(tensor));
  SetNamed<Tensor>(&Tensor::name, std::move(tensor), &tensors_);
}

void GgufWriter::SetTensor(const std::string& name, const std::vector<int64_t>& dims, TensorType type,
                           absl::Span<const float> values) {
  std::string bytes(DataBytes({name, dims, static_cast<uint32_t>(type)}), '\0');
  const auto elements = static_cast<int64_t>(values.size());
  CHECK_EQ(bytes.size(), RowBytes(type, elements));
  QuantizeRow(type, values.data(), elements, reinterpret_cast<uint8_t*>(bytes.data()));
  SetTensor(name, dims, static_cast<uint32_t>(type), std::move(bytes));
}

void GgufWriter::RemoveTensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Serialize() const { return Serialize(entries_, tensors_); }

std::string GgufWriter::Serialize(absl::Span<const GgufRawEntry> entries, absl::Span<const Tensor> tensors) const {
  std::vector<uint64_t> offsets;
  std::string out =
      Header(version_, entries, std::vector<GgufStreamTensor>(tensors.begin(), tensors.end()), alignment_, &offsets);
  if (tensors.empty()) return out;
  const size_t data_at = RoundUp(out.size(), alignment_);
  out.resize(data_at + offsets.back());
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::memcpy(out.data() + data_at + offsets[i], tensors[i].bytes.data(), tensors[i].bytes.size());
  }
  return out;
}

absl::Status GgufWriter::Write(const std::string& path) const { return WriteWholeFile(path, Serialize()); }

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
    RETURN_IF_ERROR(WriteWholeFile(paths.back(), Serialize(keys.entries_, tensors.subspan(first, last - first))));
  }
  return paths;
}

}  // namespace stagecoach
