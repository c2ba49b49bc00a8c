#include "common/gguf/gguf_stream_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/gguf/append_number.h"
#include "common/gguf/gguf_value_type.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

void AppendString(const std::string& text, std::string* out) {
  AppendNumber(uint64_t{text.size()}, out);
  *out += text;
}

uint64_t DataBytes(const GgufStreamTensor& tensor) {
  const TensorTypeInfo* type = FindTensorType(tensor.type_id);
  CHECK(type != nullptr && tensor.type_id <= 0xffff && !tensor.dims.empty());
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

}  // namespace

struct GgufStreamWriter::Counter {
  std::atomic<uint64_t> bytes{0};
};

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
  // Space that is missing shows now and not after an hour's work. File systems that cannot reserve it say so.
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
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      file_(std::move(file)),
      written_(std::make_unique<Counter>()) {}

GgufStreamWriter::~GgufStreamWriter() {
  if (!finished_) unlink(temporary_path_.c_str());
}

// Decides where everything lies and returns the header.
std::string GgufStreamWriter::PlaceTensors(absl::Span<const GgufRawEntry> metadata,
                                           absl::Span<const GgufStreamTensor> tensors) {
  std::string header;
  AppendNumber(kGgufMagic, &header);
  AppendNumber(uint32_t{3}, &header);
  AppendNumber(uint64_t{tensors.size()}, &header);
  AppendNumber(uint64_t{metadata.size()}, &header);
  for (const GgufRawEntry& entry : metadata) {
    AppendString(entry.key, &header);
    AppendNumber(static_cast<uint32_t>(entry.type), &header);
    header += entry.bytes;
  }
  const uint32_t alignment = Alignment(metadata);
  uint64_t offset = 0;
  for (const GgufStreamTensor& tensor : tensors) {
    AppendString(tensor.name, &header);
    AppendNumber(static_cast<uint32_t>(tensor.dims.size()), &header);
    for (int64_t size : tensor.dims) AppendNumber(size, &header);
    AppendNumber(tensor.type_id, &header);
    AppendNumber(offset, &header);
    const uint64_t bytes = DataBytes(tensor);
    places_.push_back({offset, bytes});
    data_bytes_ += bytes;
    offset += RoundUp(bytes, alignment);
  }
  const uint64_t data_at = tensors.empty() ? header.size() : RoundUp(header.size(), alignment);
  for (Place& place : places_) place.file_offset += data_at;
  file_bytes_ = data_at + offset;
  return header;
}

absl::Status GgufStreamWriter::Failed(const char* what, int error) const {
  const std::string message = absl::StrCat("cannot ", what, " '", temporary_path_, "' (", file_bytes_,
                                           " bytes, to become '", path_, "'): ", std::strerror(error));
  const bool no_space = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return no_space ? absl::ResourceExhaustedError(message) : absl::NotFoundError(message);
}

absl::Status GgufStreamWriter::WriteAt(uint64_t offset, absl::Span<const uint8_t> data) {
  while (!data.empty()) {
    const ssize_t written = pwrite(file_.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed("write", written < 0 ? errno : EIO);
    offset += static_cast<uint64_t>(written);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status GgufStreamWriter::Write(size_t tensor, uint64_t offset, absl::Span<const uint8_t> data) {
  const Place& place = places_[tensor];
  CHECK(offset <= place.bytes && data.size() <= place.bytes - offset);
  RETURN_IF_ERROR(WriteAt(place.file_offset + offset, data));
  written_->bytes.fetch_add(data.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status GgufStreamWriter::Finish(bool replace) {
  CHECK_EQ(written_->bytes.load(), data_bytes_);
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

}  // namespace stagecoach
