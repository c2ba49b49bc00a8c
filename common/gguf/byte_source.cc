#include "common/gguf/byte_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/status_macros.h"

namespace stagecoach {

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status ReadFully(int descriptor, const std::string& path, uint64_t offset, absl::Span<uint8_t> out) {
  constexpr size_t kLargestRead = size_t{1} << 30;  // Linux transfers at most 2 GiB a call
  size_t done = 0;
  while (done < out.size()) {
    const size_t wanted = std::min(out.size() - done, kLargestRead);
    const ssize_t got = pread(descriptor, out.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(absl::StrCat("'", path, "': reading ", wanted, " bytes at offset ", offset + done,
                                              " failed: ", std::strerror(errno)));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("'", path, "' changed or was cut while in use: expected ", out.size(),
                                              " bytes at offset ", offset, ", found ", done));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

int PwriteFully(int descriptor, uint64_t offset, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

uint64_t HashBytes(uint64_t hash, absl::Span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3ull;
  return hash;
}

absl::Status HeaderReader::CheckAvailable(absl::string_view field, uint64_t bytes) const {
  if (bytes > remaining()) {
    return Malformed("the file ends inside ", field, ": it needs ", bytes, " bytes at offset ", position_,
                     ", but only ", remaining(), " are left of ", file_bytes_,
                     "; the file was cut short, copy it again");
  }
  if (bytes > kMaxHeaderBytes - position_) {
    return Malformed(field, " needs ", bytes, " bytes at offset ", position_, ", but a header may have at most ",
                     kMaxHeaderBytes);
  }
  return absl::OkStatus();
}

absl::Status HeaderReader::Fill() {
  if (buffer_used_ < buffer_.size()) return absl::OkStatus();
  buffer_.resize(std::min<uint64_t>(kChunkBytes, remaining()));
  buffer_used_ = 0;
  return bytes_.Read(position_, absl::MakeSpan(buffer_));
}

absl::Status HeaderReader::ReadBytes(absl::string_view field, void* out, uint64_t bytes) {
  RETURN_IF_ERROR(CheckAvailable(field, bytes));
  uint8_t* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    RETURN_IF_ERROR(Fill());
    const size_t part = std::min<uint64_t>(bytes, buffer_.size() - buffer_used_);
    std::memcpy(to, buffer_.data() + buffer_used_, part);
    hash_ = HashBytes(hash_, {to, part});
    to += part;
    bytes -= part;
    buffer_used_ += part;
    position_ += part;
  }
  return absl::OkStatus();
}

absl::Status HeaderReader::Skip(absl::string_view field, uint64_t bytes) {
  RETURN_IF_ERROR(CheckAvailable(field, bytes));
  uint8_t sink[512];
  while (bytes > 0) {
    const uint64_t part = std::min<uint64_t>(bytes, sizeof(sink));
    RETURN_IF_ERROR(ReadBytes(field, sink, part));
    bytes -= part;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HeaderReader::ReadString(absl::string_view field, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
  if (length > max_bytes) {
    return Malformed(field, " is a string of ", length, " bytes, at most ", max_bytes, " are allowed");
  }
  RETURN_IF_ERROR(CheckAvailable(field, length));
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadBytes(field, text.data(), length));
  return text;
}

}  // namespace stagecoach
