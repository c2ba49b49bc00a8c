#include "coordinator/cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "coordinator/front/api/batch_line.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr size_t kReadBytes = 256 << 10;

absl::Status FileError(const std::string& path, const char* what) {
  return InputFileError(absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno)));
}

absl::Status NotOurs(const std::string& path, int64_t line, absl::string_view what) {
  return InputFileError(absl::StrCat("'", path, "' line ", line, " ", what, "; give another -o"));
}

absl::Status WriteFully(int descriptor, const std::string& path, absl::string_view text) {
  while (!text.empty()) {  // more than one round only when the system takes less, as on a full disk
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path, "write");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

void BatchTally::AddError(absl::string_view code) { ++(code == kBatchFailed ? uncomputed : wrong); }

absl::Status BatchEnding(const BatchTally& tally, absl::string_view output_path) {
  const int64_t failed = tally.failed();
  if (tally.answers > 0 || failed == 0) return absl::OkStatus();
  const std::string what =
      absl::StrCat("no line has an answer: ", failed, failed == 1 ? " has its error" : " have their errors", " in '",
                   output_path, "'");
  return tally.uncomputed > 0 ? WithExitCode(absl::UnavailableError(what), ExitCode::kLostStages)
                              : WithExitCode(absl::InvalidArgumentError(what), ExitCode::kInputFile);
}

// Two words, each a chain of bijections of 64 bits over the bytes from another start.
AnsweredLines::Fingerprint AnsweredLines::FingerprintOf(absl::string_view id) {
  Fingerprint print = {id.size(), ~id.size()};
  for (size_t i = 0; i < id.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, id.data() + i, std::min(sizeof(word), id.size() - i));
    print.first = MixBits(print.first ^ word) + 1;
    print.second = MixBits(print.second + word) ^ 1;
  }
  return print;
}

absl::Status AnsweredLines::AddOutputLine(absl::string_view text) {
  const Json json = ReadJson(text);
  const absl::Status bad = absl::InvalidArgumentError("is no line of a batch's output");
  if (!json.is_object() || !json.contains("custom_id") || !json.contains("response") || !json.contains("error"))
    return bad;
  const Json& id = json["custom_id"];
  const Json& error = json["error"];
  const bool has_code = error.is_object() && error.contains("code") && error["code"].is_string();
  const std::string code = has_code ? error["code"].get<std::string>() : "";
  if (id.is_null() || code == kDuplicateCustomId) {
    if (!error.is_object() || !error.contains("line") || !error["line"].is_number_integer()) return bad;
    answered_numbers_.insert(error["line"].get<int64_t>());
  } else if (id.is_string()) {
    answered_ids_.insert(FingerprintOf(id.get<std::string>()));
  } else {
    return bad;
  }
  if (error.is_null()) {
    ++tally_.answers;
  } else {
    tally_.AddError(code);
  }
  return absl::OkStatus();
}

bool AnsweredLines::CheckInputLine(BatchLine* line) {
  if (line->custom_id.empty()) return answered_numbers_.contains(line->number);
  const Fingerprint print = FingerprintOf(line->custom_id);
  if (taken_ids_.insert(print).second) return answered_ids_.contains(print);
  line->error = BatchError{kDuplicateCustomId,
                           absl::StrCat("the custom_id '", CutText(line->custom_id), "' was used by an earlier line")};
  return answered_numbers_.contains(line->number);
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path, AnsweredLines* answered) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError(path, "write");
  std::unique_ptr<BatchOutput> output(new BatchOutput(path, descriptor));
  struct stat info;
  if (fstat(descriptor, &info) != 0) return FileError(path, "read");
  if (!S_ISREG(info.st_mode)) {
    return InputFileError(absl::StrCat("'", path, "' is no regular file, and a run could not be resumed from it"));
  }
  RETURN_IF_ERROR(output->LockFile());
  // The lock may be that of a file which the run before has repaired, and so replaced, in the meantime.
  struct stat now;
  if (stat(path.c_str(), &now) != 0 || now.st_ino != info.st_ino || now.st_dev != info.st_dev) {
    return InputFileError(absl::StrCat("'", path, "' is in use by another run"));
  }
  ASSIGN_OR_RETURN(const Contents contents, output->Read(answered, /*keep=*/-1));
  if (contents.damaged_lines > 0) {
    LogInfo(absl::StrCat("'", path, "': ", contents.damaged_lines, contents.damaged_lines == 1 ? " line" : " lines",
                         " with zero bytes, as after a power cut; taken out, and answered again"));
    RETURN_IF_ERROR(output->Repair());
  } else if (contents.torn && ftruncate(descriptor, contents.whole_bytes) != 0) {
    return FileError(path, "cut the torn last line of");
  }
  return output;
}

BatchOutput::~BatchOutput() { close(descriptor_); }

absl::Status BatchOutput::LockFile() const {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return InputFileError(absl::StrCat("'", path_, "' is in use by another run"));
}

// Reads the lines into `answered` (unless nullptr), and writes those that are whole to `keep` (unless -1).
absl::StatusOr<BatchOutput::Contents> BatchOutput::Read(AnsweredLines* answered, int keep) const {
  Contents contents;
  std::ifstream in(path_, std::ios::binary);
  std::vector<char> buffer(kReadBytes);
  std::string line;
  bool damaged = false;
  const absl::string_view start(kBatchLineStart);
  int64_t number = 1, offset = 0;
  while (in.read(buffer.data(), kReadBytes), in.gcount() > 0) {
    for (const char* at = buffer.data(); at < buffer.data() + in.gcount();) {
      const size_t left = static_cast<size_t>(buffer.data() + in.gcount() - at);
      const char* newline = static_cast<const char*>(std::memchr(at, '\n', left));
      const size_t part = newline == nullptr ? left : static_cast<size_t>(newline - at);
      damaged = damaged || std::memchr(at, '\0', part) != nullptr;
      damaged ? line.clear() : void(line.append(at, part));
      // Said before a file without any newline fills the memory.
      if (line.size() >= start.size() && !absl::StartsWith(line, start)) {
        return NotOurs(path_, number, "is no line of a batch's output");
      }
      at += part + (newline == nullptr ? 0 : 1);
      offset += static_cast<int64_t>(part + (newline == nullptr ? 0 : 1));
      if (newline == nullptr) continue;
      contents.whole_bytes = offset;
      if (damaged) {
        ++contents.damaged_lines;
      } else {
        const absl::Status status = answered == nullptr ? absl::OkStatus() : answered->AddOutputLine(line);
        if (!status.ok()) return NotOurs(path_, number, status.message());
        if (keep >= 0) RETURN_IF_ERROR(WriteFully(keep, path_, line + "\n"));
      }
      line.clear();
      damaged = false;
      ++number;
    }
  }
  if (in.bad()) return FileError(path_, "read");
  contents.torn = damaged || !line.empty();
  if (!damaged && !absl::StartsWith(line, start) && !absl::StartsWith(start, line)) {
    return NotOurs(path_, number, "is no line of a batch's output");
  }
  if (damaged) ++contents.damaged_lines;
  return contents;
}

absl::Status BatchOutput::Repair() {
  std::error_code error;
  const std::string old_path = std::filesystem::canonical(path_, error).string();
  std::string fresh_path = old_path + ".repaired.XXXXXX";
  const int fresh = mkostemp(fresh_path.data(), O_APPEND | O_CLOEXEC);
  if (fresh < 0) return FileError(fresh_path, "write");
  absl::Status status = Read(/*answered=*/nullptr, fresh).status();
  struct stat old;
  if (status.ok() && (fstat(descriptor_, &old) != 0 || fchmod(fresh, old.st_mode & 07777) != 0 || fsync(fresh) != 0))
    status = FileError(fresh_path, "write");
  if (status.ok() && rename(fresh_path.c_str(), old_path.c_str()) != 0) status = FileError(path_, "replace");
  if (!status.ok()) {
    close(fresh);
    unlink(fresh_path.c_str());
    return status;
  }
  close(std::exchange(descriptor_, fresh));
  return LockFile();
}

absl::Status BatchOutput::Append(const Json& line) {
  unsynced_ = true;
  return WriteFully(descriptor_, path_, CompactJson(line) + "\n");
}

absl::Status BatchOutput::Sync() {
  if (!std::exchange(unsynced_, false)) return absl::OkStatus();
  return fdatasync(descriptor_) == 0 ? absl::OkStatus() : FileError(path_, "write");
}

}  // namespace stagecoach
