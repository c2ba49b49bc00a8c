#ifndef STAGECOACH_COMMON_BASE_LINE_FILE_H_
#define STAGECOACH_COMMON_BASE_LINE_FILE_H_

// Reads a text file line by line. A line longer than any of ours ends it: so what was given by mistake, a model or a
// device, is found out before it fills the memory. Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

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

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_BASE_LINE_FILE_H_
