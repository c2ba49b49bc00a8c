#include "coordinator/cli/chat/line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"

namespace stagecoach {
namespace {

constexpr mode_t kOwnFile = 0600;

// A descriptor that is closed when it goes.
class HistoryFile {
 public:
  HistoryFile(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, kOwnFile)) {}
  ~HistoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  HistoryFile(const HistoryFile&) = delete;

  int get() const { return descriptor_; }

  // Its last `most` bytes.
  bool ReadEnd(size_t most, std::string* text) const {
    const off_t size = lseek(descriptor_, 0, SEEK_END);
    if (size < 0) return false;
    const off_t start = std::max<off_t>(size - static_cast<off_t>(most), 0);
    std::string bytes(static_cast<size_t>(size - start), '\0');
    const ssize_t got = pread(descriptor_, bytes.data(), bytes.size(), start);
    if (got < 0) return false;
    *text = bytes.substr(0, static_cast<size_t>(got));
    return true;
  }

 private:
  int descriptor_;
};

absl::Status NotKept(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the history of lines is not kept: ", why, "; --no-history goes without"));
}

absl::Status Unwritable(const std::string& path) {
  return NotKept(absl::StrCat("cannot write '", path, "': ", std::strerror(errno)));
}

}  // namespace

std::string LineHistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string directory;
  if (state != nullptr && state[0] == '/') {  // what is no absolute path is to be ignored, says its specification
    directory = state;
  } else if (home != nullptr && home[0] == '/') {
    directory = absl::StrCat(home, "/.local/state");
  }
  return directory.empty() ? "" : absl::StrCat(directory, "/stagecoach/chat_history");
}

absl::Status LineHistory::Open(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return Unwritable(path);
  {
    const HistoryFile file(path, O_RDWR | O_CREAT | O_NONBLOCK);  // a pipe of this name would wait for a reader
    struct stat info;
    if (file.get() < 0 || fstat(file.get(), &info) != 0) return Unwritable(path);
    if (!S_ISREG(info.st_mode)) {
      errno = EINVAL;
      return Unwritable(path);
    }
    std::string text;
    if (fchmod(file.get(), kOwnFile) != 0 || !file.ReadEnd(kMostFileBytes, &text)) return Unwritable(path);
    // The first of the last bytes may be in the middle of a line.
    if (static_cast<size_t>(info.st_size) > text.size()) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
    for (absl::string_view line : absl::StrSplit(text, '\n')) Keep(line);
  }
  path_ = path;
  return Shorten();
}

// So that the file does not grow for ever.
absl::Status LineHistory::Shorten() {
  struct stat info;
  if (stat(path_.c_str(), &info) != 0 || static_cast<size_t>(info.st_size) <= kMostFileBytes) return absl::OkStatus();
  const size_t half = lines_.size() / 2;
  const absl::Status written = WriteWholeFile(
      path_, absl::StrCat(absl::StrJoin(lines_.begin() + static_cast<ptrdiff_t>(half), lines_.end(), "\n"), "\n"),
      WholeFile::InPlace::kNever);
  if (written.ok()) return written;
  path_.clear();
  return NotKept(written.message());
}

bool LineHistory::Keep(absl::string_view line) {
  const bool blank = absl::StripAsciiWhitespace(line).empty();
  const bool control = std::any_of(
      line.begin(), line.end(), [](char c) { return c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  if (blank || control || line.size() > kMostFileBytes / 16) return false;
  if (!lines_.empty() && lines_.back() == line) return false;
  lines_.emplace_back(line);
  if (lines_.size() > kMostLines) lines_.erase(lines_.begin());
  return true;
}

absl::Status LineHistory::Add(absl::string_view line) {
  if (!Keep(line) || path_.empty()) return absl::OkStatus();
  const HistoryFile file(path_, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK);
  if (file.get() >= 0 && WriteFully(file.get(), absl::StrCat(line, "\n"))) return absl::OkStatus();
  return Unwritable(std::exchange(path_, ""));
}

}  // namespace stagecoach
