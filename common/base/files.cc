#include "common/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 1 << 18;

absl::Status CannotRead(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno)));
}

constexpr mode_t kNewFile = 0666;
constexpr size_t kWriteBytes = 1 << 20;

// Makes a file beside `path`, of a name that nobody has; -1: errno says why not.
int CreateBeside(const std::string& path, std::string* fresh) {
  for (int number = 0;; ++number) {
    *fresh = absl::StrCat(path, ".new", number == 0 ? "" : absl::StrCat(number));
    const int descriptor = open(fresh->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kNewFile);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

}  // namespace

bool SameContent(const std::vector<FileFingerprint>& a, const std::vector<FileFingerprint>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const FileFingerprint& one, const FileFingerprint& other) { return SameContent(one, other); });
}

uint64_t TotalBytes(const std::vector<FileFingerprint>& shards) {
  uint64_t bytes = 0;
  for (const FileFingerprint& shard : shards) bytes += shard.size_bytes;
  return bytes;
}

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

bool WriteFully(int descriptor, absl::string_view text) {
  while (!text.empty()) {  // more than one round only when the system takes less, as on a full disk
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

WholeFile::WholeFile(const std::string& path, InPlace in_place) : path_(path) {
  if (path.empty()) {
    Fail(ENOENT);
    return;
  }
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  target_ = error ? path : real.string();
  struct stat info = {};
  const bool there = stat(target_.c_str(), &info) == 0;
  int why = 0;
  if (!there || S_ISREG(info.st_mode)) {
    descriptor_ = CreateBeside(target_, &fresh_);
    why = descriptor_ < 0 ? errno : 0;
    if (descriptor_ >= 0 && there) fchmod(descriptor_, info.st_mode & 07777);
  }
  if (descriptor_ >= 0) return;
  fresh_.clear();
  const bool refused = why == EACCES || why == EPERM || why == EROFS;
  if (there && (why == 0 || (refused && in_place == InPlace::kIfNeeded)))
    descriptor_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) Fail(why == 0 ? errno : why);
}

WholeFile::~WholeFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!fresh_.empty()) unlink(fresh_.c_str());
}

void WholeFile::Fail(int error) {
  if (status_.ok()) status_ = absl::DataLossError(absl::StrCat("cannot write '", path_, "': ", std::strerror(error)));
}

void WholeFile::Add(absl::string_view text) {
  if (text.size() >= kWriteBytes) {  // not copied: it may be a whole model
    Flush();
    return Write(text);
  }
  absl::StrAppend(&waiting_, text);
  if (waiting_.size() >= kWriteBytes) Flush();
}

void WholeFile::Flush() {
  Write(waiting_);
  waiting_.clear();
}

void WholeFile::Write(absl::string_view text) {
  // What is no regular file has no end to cut.
  const bool cuts = status_.ok() && fresh_.empty() && !std::exchange(begun_, true);
  if (cuts && ftruncate(descriptor_, 0) != 0 && errno != EINVAL) Fail(errno);
  if (status_.ok() && !WriteFully(descriptor_, text)) Fail(errno);
}

absl::Status WholeFile::Finish() {
  Flush();
  if (descriptor_ >= 0 && close(std::exchange(descriptor_, -1)) != 0) Fail(errno);  // some file systems notice only now
  if (!status_.ok() || fresh_.empty()) return status_;
  if (std::rename(fresh_.c_str(), target_.c_str()) != 0) {
    Fail(errno);
  } else {
    fresh_.clear();
  }
  return status_;
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view text, WholeFile::InPlace in_place) {
  WholeFile file(path, in_place);
  file.Add(text);
  return file.Finish();
}

absl::Status CheckWholeFile(const std::string& path) { return WholeFile(path).status(); }

}  // namespace stagecoach
