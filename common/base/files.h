#ifndef STAGECOACH_COMMON_BASE_FILES_H_
#define STAGECOACH_COMMON_BASE_FILES_H_

// Files: told apart, read by lines, replaced as a whole.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// What must not change under a running job: compared in the handshake and at every relaunch.
struct FileFingerprint {
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;   // modification time, nanoseconds since the epoch
  uint64_t header_hash = 0;  // of all bytes before the tensor data
  uint64_t sample_hash = 0;  // of some bytes of the tensor data, spread over all of it
  friend bool operator==(const FileFingerprint&, const FileFingerprint&) = default;
};

// Whether two files are copies of each other: copies have times of their own.
constexpr bool SameContent(FileFingerprint a, const FileFingerprint& b) {
  a.modified_ns = b.modified_ns;
  return a == b;
}

// Of the shards of a model, in their order.
bool SameContent(const std::vector<FileFingerprint>& a, const std::vector<FileFingerprint>& b);
uint64_t TotalBytes(const std::vector<FileFingerprint>& shards);

// Reads a text file line by line. A line longer than any of ours ends it: what was given by mistake, a model or a
// device, is found out before it fills the memory. Not thread-safe.
class LineFile {
 public:
  LineFile(const std::string& path, size_t most_line_bytes);
  ~LineFile();
  LineFile(const LineFile&) = delete;

  // The next line without its newline, valid until the next call; absent at the end of the file. kNotFound: it cannot
  // be opened or read; the message has its name and why. kInvalidArgument: the line is too long; the message says which
  // and has no name. Once not OK, always the same.
  absl::StatusOr<std::optional<absl::string_view>> Next();

  int64_t number() const { return number_; }  // of the line given last, from 1
  bool whole() const { return whole_; }       // that line had its newline, which the file's last one may lack

 private:
  absl::StatusOr<bool> Fill();  // false at the end of the file

  const std::string path_;
  const size_t most_line_bytes_;
  int descriptor_;
  absl::Status status_;
  std::string buffer_;
  size_t begin_ = 0;  // in the buffer: of what was not given out
  std::string line_;
  int64_t number_ = 0;
  bool whole_ = false;
};

// Writes all of it, with one call where the system takes it. False: errno says why not.
bool WriteFully(int descriptor, absl::string_view text);

// Replaces a file atomically: writes the text to a new file beside it (<path>.new, or with a number if that exists),
// gives that the old file's mode, and renames it. Nobody ever sees half of a text, and after a failure the old one is
// still there.
//
// Devices, pipes, and files in a directory that takes no new file (EACCES, EPERM, EROFS) are written in place, where a
// failure may leave half of the text. Errors are kDataLoss: the path, and what the system says. Not thread-safe.
class WholeFile {
 public:
  // kNever: a file whose directory takes no new one is refused.
  enum class InPlace { kIfNeeded, kNever };
  explicit WholeFile(const std::string& path, InPlace in_place = InPlace::kIfNeeded);
  ~WholeFile();  // without Finish: changes nothing, unless it writes in place
  WholeFile(const WholeFile&) = delete;

  const absl::Status& status() const { return status_; }
  void Add(absl::string_view text);  // errors are those of Finish
  absl::Status Finish();

 private:
  void Flush();
  void Write(absl::string_view text);
  void Fail(int error);

  const std::string path_;
  std::string target_;  // the path with its links followed
  std::string fresh_;   // what is written; empty: the target itself
  int descriptor_ = -1;
  bool begun_ = false;  // something was written
  std::string waiting_;
  absl::Status status_;
};
absl::Status WriteWholeFile(const std::string& path, absl::string_view text,
                            WholeFile::InPlace in_place = WholeFile::InPlace::kIfNeeded);

// Whether a WholeFile could be begun now, to find out before much work is done. Leaves nothing behind.
absl::Status CheckWholeFile(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_FILES_H_
