#ifndef STAGECOACH_COORDINATOR_CLI_BATCH_BATCH_FILES_H_
#define STAGECOACH_COORDINATOR_CLI_BATCH_BATCH_FILES_H_

// The files of a batch: request lines, possibly through a pipe, and answers, which survive a kill.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/serve/api/batch_line.h"

namespace stagecoach {

// Reads lines without blocking, so that work goes on while a pipe is silent. Buffers one line and one read. Not
// thread-safe.
class LineReader {
 public:
  struct Line {
    int64_t number = 0;     // from 1; blank lines count but are not given out
    std::string text;       // without its newline
    bool too_long = false;  // longer than max_line_bytes; `text` is empty
    int64_t end = 0;        // bytes of the input up to its end
  };

  // The descriptor is not closed.
  LineReader(int descriptor, size_t max_line_bytes) : descriptor_(descriptor), max_line_bytes_(max_line_bytes) {}

  // The next line that has arrived.
  std::optional<Line> TryNext();
  bool finished() const { return finished_; }  // the end was reached (or reading failed), and every line was taken
  bool paused() const { return paused_; }      // TryNext gave nothing, though more can be read at once
  const absl::Status& status() const { return status_; }  // why reading failed

 private:
  bool Read();  // false: nothing can be read now
  void Take(size_t end);
  std::optional<Line> EndLine();  // unless it is blank

  const int descriptor_;
  const size_t max_line_bytes_;
  std::string bytes_;  // read
  size_t at_ = 0;      // of bytes_: those before this are taken
  int64_t taken_bytes_ = 0;
  Line current_ = {.number = 1};
  bool current_started_ = false;
  bool paused_ = false, finished_ = false;
  absl::Status status_;
};

// What became of lines.
struct BatchTally {
  int64_t answers = 0;
  int64_t wrong = 0;       // cannot be answered
  int64_t uncomputed = 0;  // the job could not compute them to their end

  void AddError(absl::string_view code);  // BatchError::code
  int64_t failed() const { return wrong + uncomputed; }
};

// The result of a batch whose lines are all processed. OK if one has an answer or there are none: the others have their
// errors in the output, and would have them again. Otherwise kLostStages if the job failed to compute a line, else
// kInputFile.
absl::Status BatchEnding(const BatchTally& tally, absl::string_view output_path);

// Which input lines are answered. A line is known by its custom_id, or by its number if it has none or repeats one.
// Keeps 16 bytes of each custom_id: about 40 bytes of memory per line of input and output.
class AnsweredLines {
 public:
  // Takes a line of an output file. kInvalidArgument for anything we did not write.
  absl::Status AddOutputLine(absl::string_view text);

  // Whether the input line needs no work. Call once per input line, in order: marks the custom_id as taken, and turns a
  // line that repeats one into a duplicate_custom_id error.
  bool CheckInputLine(BatchLine* line);

  const BatchTally& tally() const { return tally_; }  // of the output's lines

 private:
  using Fingerprint = std::pair<uint64_t, uint64_t>;
  static Fingerprint FingerprintOf(absl::string_view id);

  BatchTally tally_;
  absl::flat_hash_set<Fingerprint> answered_ids_;
  absl::flat_hash_set<int64_t> answered_numbers_;
  absl::flat_hash_set<Fingerprint> taken_ids_;
};

// The file. One process at a time has it open.
class BatchOutput {
 public:
  // Creates `path`, or reads an earlier run's lines into `answered`. Cuts off a last line without its newline. Removes
  // lines with zero bytes, which a power cut leaves if blocks had not reached the disk: rewrites the file beside itself
  // and renames it, with its old mode, at the end of a symbolic link. Errors (ExitCode::kInputFile): not writable, in
  // use by another run, or not an output of a batch, which is left as it is.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path, AnsweredLines* answered);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;

  absl::Status Append(const Json& line);  // with one write
  // Flushes what was appended to the disk. Cheap if nothing was.
  absl::Status Sync();

 private:
  struct Contents {
    int64_t whole_bytes = 0;    // up to the last newline
    int64_t damaged_lines = 0;  // with zero bytes
    bool torn = false;          // something follows the last newline
  };

  BatchOutput(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::StatusOr<Contents> Read(AnsweredLines* answered, int keep) const;
  absl::Status LockFile() const;
  absl::Status Repair();

  const std::string path_;
  int descriptor_;
  bool unsynced_ = false;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_BATCH_BATCH_FILES_H_
