#include "common/base/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 1 << 18;

absl::Status CannotRead(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno)));
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

}  // namespace stagecoach
