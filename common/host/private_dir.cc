#include "common/host/private_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace stagecoach {
namespace {

constexpr char kPrefix[] = "stagecoach.";
constexpr size_t kSuffixLength = 6;
// Processes of a dying job may still put a file into the directory while it is being emptied.
constexpr int kAttempts = 5;

bool IsOurDirectory(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

}  // namespace

absl::StatusOr<std::string> MakePrivateDirectory(const std::string& parent) {
  std::error_code error;
  std::string path =
      (std::filesystem::absolute(parent, error) / absl::StrCat(kPrefix, "XXXXXX")).lexically_normal().string();
  if (mkdtemp(path.data()) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make a private directory in '", parent,
                                                      "': ", std::strerror(errno),
                                                      "; set TMPDIR to a directory that can be written"));
  }
  return path;
}

absl::Status MakePrivateDirectoryAt(const std::string& path) {
  if (IsPrivateDirectoryName(path)) {
    if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
    if (errno == EEXIST && IsOurDirectory(path)) return absl::OkStatus();
  } else {
    errno = EINVAL;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the private directory '", path, "': ", std::strerror(errno)));
}

bool IsPrivateName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix)) return false;
  return name.size() == kSuffixLength &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

bool IsPrivateDirectoryName(const std::string& path) {
  if (path.empty() || path[0] != '/' || absl::StrContains(path, "/../")) return false;
  return IsPrivateName(absl::string_view(path).substr(path.rfind('/') + 1));
}

void RemovePrivateDirectories(const std::vector<std::string>& directories) {
  for (const std::string& path : directories) {
    if (!IsPrivateDirectoryName(path)) continue;
    for (int attempt = 0; attempt < kAttempts && IsOurDirectory(path); ++attempt) {
      std::error_code error;
      std::filesystem::remove_all(path, error);
    }
  }
}

}  // namespace stagecoach
