#include "common/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 1 << 18;

absl::Status CannotRead(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno)));
}

constexpr mode_t kNewFile = 0666;

// Where the text is written, and what that replaces then.
struct Target {
  std::string path;        // the links of the given one followed
  std::string written;     // <path>.new, or `path` itself where that is a device, a pipe or a directory
  mode_t mode = kNewFile;  // of what is replaced
  bool replaces() const { return written != path; }
};

Target TargetOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  Target target;
  target.path = error ? path : real.string();
  struct stat info = {};
  const bool there = stat(target.path.c_str(), &info) == 0;
  if (there) target.mode = info.st_mode & 07777;
  target.written = there && !S_ISREG(info.st_mode) ? target.path : target.path + ".new";
  return target;
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::DataLossError(absl::StrCat("cannot write '", path, "': ", std::strerror(error)));
}

int Open(const Target& target) {
  if (target.path.empty()) {
    errno = ENOENT;
    return -1;
  }
  const int flags = target.replaces() ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_WRONLY | O_CLOEXEC;
  const int descriptor = open(target.written.c_str(), flags, kNewFile);
  if (descriptor >= 0 && target.mode != kNewFile && target.replaces()) fchmod(descriptor, target.mode);
  return descriptor;
}

// 0, or errno.
int WriteAll(int descriptor, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

LineFile::LineFile(const std::string& path, size_t most_line_bytes)
    : path_(path), most_line_bytes_(most_line_bytes), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) status_ = CannotRead(path_);
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<bool> LineFile::Fill() {
  buffer_.resize(kReadBytes);
  begin_ = 0;
  ssize_t got = 0;
  do {
    got = read(descriptor_, buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return status_ = CannotRead(path_);
  buffer_.erase(static_cast<size_t>(got));
  return got > 0;
}

absl::StatusOr<std::optional<absl::string_view>> LineFile::Next() {
  RETURN_IF_ERROR(status_);
  line_.clear();
  whole_ = false;
  while (true) {
    const size_t end = buffer_.find('\n', begin_);
    whole_ = end != std::string::npos;
    line_.append(buffer_, begin_, whole_ ? end - begin_ : std::string::npos);
    begin_ = whole_ ? end + 1 : buffer_.size();
    if (line_.size() > most_line_bytes_) {
      return status_ = absl::InvalidArgumentError(
                 absl::StrCat("line ", number_ + 1, " is longer than ", most_line_bytes_, " bytes"));
    }
    if (!whole_) {
      ASSIGN_OR_RETURN(const bool more, Fill());
      if (more) continue;
      if (line_.empty()) return std::optional<absl::string_view>();
    }
    ++number_;
    return std::optional<absl::string_view>(line_);
  }
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  const Target target = TargetOf(path);
  const int descriptor = Open(target);
  if (descriptor < 0) return CannotWrite(path, errno);
  int error = WriteAll(descriptor, text);
  if (close(descriptor) != 0 && error == 0) error = errno;  // some file systems notice only now
  if (!target.replaces()) return error == 0 ? absl::OkStatus() : CannotWrite(path, error);
  if (error == 0 && std::rename(target.written.c_str(), target.path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(target.written.c_str());
  return CannotWrite(path, error);
}

absl::Status CheckWholeFile(const std::string& path) {
  const Target target = TargetOf(path);
  const int descriptor = Open(target);
  if (descriptor < 0) return CannotWrite(path, errno);
  close(descriptor);
  if (target.replaces()) unlink(target.written.c_str());
  return absl::OkStatus();
}

}  // namespace stagecoach
