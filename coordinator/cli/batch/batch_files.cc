#include "coordinator/cli/batch/batch_files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "common/base/counter_rng.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kReadAtOnce = 1 << 16;
constexpr int kMostReads = 1 << 10;  // a device has no end, and there may be a signal to see

constexpr size_t kReadBytes = 256 << 10;

absl::Status FileError(const std::string& path, const char* what) {
  return InputFileError(absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno)));
}

absl::Status ForeignFile(const std::string& path, int64_t line, absl::string_view what) {
  return InputFileError(absl::StrCat("'", path, "' line ", line, " ", what, "; give another -o"));
}

}  // namespace

std::optional<LineReader::Line> LineReader::TryNext() {
  paused_ = false;
  for (int reads = 0; !finished_ && reads < kMostReads;) {
    const size_t newline = bytes_.find('\n', at_);
    if (newline == std::string::npos) {
      Take(bytes_.size());
      if (!Read()) return std::nullopt;
      ++reads;
      if (finished_ && status_.ok() && current_started_) return EndLine();  // what an error cut off is no line
      continue;
    }
    Take(newline);
    current_started_ = true;
    ++at_;
    ++taken_bytes_;
    if (std::optional<Line> line = EndLine()) return line;
  }
  paused_ = !finished_;
  return std::nullopt;
}

// The bytes of the current line from at_ on.
void LineReader::Take(size_t end) {
  const size_t part = end - at_;
  current_started_ = current_started_ || part > 0;
  current_.too_long = current_.too_long || current_.text.size() + part > max_line_bytes_;
  if (current_.too_long) {
    current_.text.clear();
  } else {
    current_.text.append(bytes_, at_, part);
  }
  at_ = end;
  taken_bytes_ += static_cast<int64_t>(part);
}

bool LineReader::Read() {
  pollfd input = {.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (poll(&input, 1, 0) <= 0) return false;
  bytes_.resize(kReadAtOnce);
  at_ = 0;
  const ssize_t got = read(descriptor_, bytes_.data(), bytes_.size());
  const bool again = got < 0 && (errno == EINTR || errno == EAGAIN);
  if (got < 0 && !again) status_ = absl::DataLossError(absl::StrCat("cannot read the input: ", std::strerror(errno)));
  finished_ = got == 0 || !status_.ok();
  bytes_.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return !again;
}

std::optional<LineReader::Line> LineReader::EndLine() {
  Line line = std::exchange(current_, Line());
  line.end = taken_bytes_;
  current_.number = line.number + 1;
  current_started_ = false;
  const bool blank = !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
  return blank ? std::nullopt : std::optional<Line>(std::move(line));
}

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
        return ForeignFile(path_, number, "is no line of a batch's output");
      }
      at += part + (newline == nullptr ? 0 : 1);
      offset += static_cast<int64_t>(part + (newline == nullptr ? 0 : 1));
      if (newline == nullptr) continue;
      contents.whole_bytes = offset;
      if (damaged) {
        ++contents.damaged_lines;
      } else {
        const absl::Status status = answered == nullptr ? absl::OkStatus() : answered->AddOutputLine(line);
        if (!status.ok()) return ForeignFile(path_, number, status.message());
        if (keep >= 0 && !WriteFully(keep, line + "\n")) return FileError(path_, "write");
      }
      line.clear();
      damaged = false;
      ++number;
    }
  }
  if (in.bad()) return FileError(path_, "read");
  contents.torn = damaged || !line.empty();
  if (!damaged && !absl::StartsWith(line, start) && !absl::StartsWith(start, line)) {
    return ForeignFile(path_, number, "is no line of a batch's output");
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
  return WriteFully(descriptor_, CompactJson(line) + "\n") ? absl::OkStatus() : FileError(path_, "write");
}

absl::Status BatchOutput::Sync() {
  if (!std::exchange(unsynced_, false)) return absl::OkStatus();
  return fdatasync(descriptor_) == 0 ? absl::OkStatus() : FileError(path_, "write");
}

}  // namespace stagecoach
