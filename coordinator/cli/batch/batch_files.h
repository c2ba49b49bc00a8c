#ifndef STAGECOACH_COORDINATOR_CLI_BATCH_BATCH_FILES_H_
#define STAGECOACH_COORDINATOR_CLI_BATCH_BATCH_FILES_H_

// The files of a batch: lines of requests, which may come through a pipe, and answers, which survive being killed.

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

// Reads lines without ever waiting for them, so that a pipe may pause while work goes on. Holds one line and what was
// read with it. Not thread-safe.
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

  // The next line that is there by now.
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

// How a batch ends that has dealt with all its lines: OK where one of them has its answer, or there are none. Each of
// the others has its error in the output, and would have it again. With errors alone, kLostStages where the job could
// not compute a line, else kInputFile.
absl::Status BatchEnding(const BatchTally& tally, absl::string_view output_path);

// Which lines of the input have their answer. A line is known by its custom_id; one without, or one that repeats an
// earlier one's, by its number. Of a custom_id 16 bytes are kept, however long it is, for each line of the input and of
// the output: about 40 bytes of memory a line.
class AnsweredLines {
 public:
  // Takes a line of an output file. kInvalidArgument for anything we did not write.
  absl::Status AddOutputLine(absl::string_view text);

  // Whether the line of the input needs no work. Must be asked for every line of the input in order, once: it marks the
  // custom_id as taken, and a line that repeats one is turned to a duplicate_custom_id error.
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
  // Creates `path`, or reads what an earlier run left there into `answered`. A last line without its newline is cut
  // off. Lines with zero bytes in them, which a power cut leaves where blocks had not reached the disk, are taken out
  // (the file is written anew beside itself and renamed, with its old mode, at the end of a symbolic link); the others
  // are kept. Errors end with ExitCode::kInputFile:
  // not writable, in use by another run, or not a file of ours, which is left as it is.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path, AnsweredLines* answered);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;

  absl::Status Append(const Json& line);  // with one write
  // What was appended is on the disk afterwards. Costs little when nothing was appended since.
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
