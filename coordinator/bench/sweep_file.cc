#include "coordinator/bench/sweep_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

std::string ErrorText(absl::string_view what, const std::string& path) {
  return absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno));
}

absl::Status WriteAll(int descriptor, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::DataLossError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SweepRecords> ReadSweepFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(ErrorText("read", path));
  SweepRecords records;
  absl::flat_hash_map<std::pair<bool, std::string>, size_t> index_of;  // by simulated, key
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const bool ended = !file.eof();
    if (line.empty()) continue;
    absl::StatusOr<SweepPoint> point = ParseSweepPoint(line);
    if (!point.ok()) {
      if (!ended) records.cut = true;
      if (ended) records.refused.push_back(absl::StrCat("line ", number, ": ", point.status().message()));
      continue;
    }
    const auto [entry, added] =
        index_of.try_emplace(std::pair(point->simulated, SweepKey(point->config)), records.points.size());
    if (added) {
      records.points.push_back(*std::move(point));
    } else {
      records.points[entry->second] = *std::move(point);
    }
  }
  if (file.bad()) return absl::DataLossError(ErrorText("read", path));
  return records;
}

absl::StatusOr<std::unique_ptr<SweepFile>> SweepFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return absl::NotFoundError(ErrorText("write", path));
  auto file = std::unique_ptr<SweepFile>(new SweepFile(path, descriptor));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is being written by another sweep; wait for its end, or give another directory"));
  }
  RETURN_IF_ERROR(file->EndLastLine());
  return file;
}

SweepFile::~SweepFile() { close(descriptor_); }

absl::Status SweepFile::EndLastLine() {
  ASSIGN_OR_RETURN(const SweepRecords records, ReadSweepFile(path_));
  struct stat info = {};
  if (fstat(descriptor_, &info) != 0) return absl::DataLossError(ErrorText("read", path_));
  char last = '\n';
  if (info.st_size > 0 && pread(descriptor_, &last, 1, info.st_size - 1) != 1) {
    return absl::DataLossError(ErrorText("read", path_));
  }
  if (last == '\n') return absl::OkStatus();
  if (!records.cut) return WriteAll(descriptor_, "\n");  // a whole line without its end
  off_t size = info.st_size;
  for (char c = 0; size > 0; --size) {
    if (pread(descriptor_, &c, 1, size - 1) != 1) return absl::DataLossError(ErrorText("read", path_));
    if (c == '\n') break;
  }
  if (ftruncate(descriptor_, size) != 0) return absl::DataLossError(ErrorText("shorten", path_));
  return absl::OkStatus();
}

absl::Status SweepFile::Append(const SweepPoint& point) {
  if (absl::Status status = WriteAll(descriptor_, SweepPointLine(point)); !status.ok()) {
    return absl::DataLossError(absl::StrCat("cannot write '", path_, "': ", status.message()));
  }
  // A file system without it (a pipe, some network mounts) has nothing better to offer.
  if (fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return absl::DataLossError(ErrorText("write", path_));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
