#ifndef STAGECOACH_COMMON_OBS_STEP_LOG_H_
#define STAGECOACH_COMMON_OBS_STEP_LOG_H_

// A file to which every micro-batch adds lines as the job runs. The step log itself has one JSON line a micro-batch:
// what it held and when each stage worked on it.
//
//   {"number":3,"slices":[{"sequence":1,"start":512,"count":88,"sample":true}],"submit_us":..,"confirm_us":..,
//    "stages":[{"stage":0,"received_us":..,"start_us":..,"end_us":..},..]}
//
// and, for a replay (StepInputs), where there are any: "job" (with the first micro-batch), "commands"
// ({"add":7,"confirmed":3,"prompt_tokens":..,"output_tokens":..,"max_new_tokens":..} or {"cancel":7,"confirmed":4})
// and "decode_groups". Slices of a model with recurrent layers have "state_read" and "state_write": slots, the first
// absent where a sequence begins at zeros. The slice of a guess has "guess":"right" or "guess":"void", and its
// micro-batch "confirmed"; "guess_places" stands beside "decode_groups". "define_grammars" and "drop_grammars" are ids.
// Where the job asks for an account of every step (common/step/step_part.h), a stage has "parts", those that are not 0:
// [{"part":"head","busy_ns":..,"wait_ns":..,"bytes":..},..].
//
// Times are microseconds of MonotonicUs() of the host that took them (common/base/clock.h): those of one host are
// comparable, those of different hosts are not; a trace (coordinator/trace) brings them together.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/obs/step_record.h"

namespace stagecoach {

// One line, without the newline.
std::string StepLogLine(const StepRecord& record);

// What is in the file.
struct StepLogFormat {
  std::string name = "step log";  // for messages
  std::string head;               // whole lines, written at once when it is opened
  // Appends the record's lines, each with its newline; called by the log's own thread. The step log leaves the last
  // frame of a job out.
  std::function<void(const StepRecord& record, std::string* lines)> append;
  // Of the whole file, with what an earlier job left in it: the lines that would make it larger, and all after them,
  // are left out and counted.
  uint64_t most_bytes = UINT64_MAX;
};
StepLogFormat PlainStepLog();

// A thread of its own makes and writes the lines: Write never waits for the disk. Whole lines reach the file at once,
// so that a killed job leaves whole lines. When the file cannot be written the log ends there, and says so once. Write,
// Close: one thread.
class StepLog : public StepSink {
 public:
  // Memory for lines that the disk has not taken yet. What comes on top of that is left out, and counted.
  static constexpr size_t kMaxWaitingBytes = 64 << 20;

  // kInvalidArgument when the file cannot be opened for writing. `append`: go on after the lines of an earlier job.
  static absl::StatusOr<std::unique_ptr<StepLog>> Open(const std::string& path, bool append,
                                                       StepLogFormat format = PlainStepLog());
  ~StepLog() override;  // Close

  void Write(StepRecord record) override;

  // From here on Write waits for room rather than leave a line out: for simulations. The same thread as Write.
  void WaitForTheDisk() { wait_for_disk_ = true; }

  // Waits until all lines are written. kDataLoss: the first error, or how many micro-batches were left out, and why. No
  // Write follows.
  absl::Status Close();

 private:
  StepLog(std::string path, int descriptor, StepLogFormat format);
  void WriteLines();  // the thread
  absl::Status WriteLines(const std::vector<StepRecord>& records);
  absl::Status WriteWhole(absl::string_view lines);

  const std::string path_;
  const StepLogFormat format_;
  const int descriptor_;
  bool wait_for_disk_ = false;  // of the thread that calls Write

  std::mutex mu_;
  std::condition_variable more_, room_;
  // Guarded by mu_.
  std::vector<StepRecord> waiting_;
  size_t waiting_bytes_ = 0;  // those that are being written included
  int64_t left_out_ = 0;      // lines, for want of memory
  bool closing_ = false;
  absl::Status written_;  // the first error

  // Of the writing thread, until it is joined.
  uint64_t bytes_ = 0;  // of the file
  bool full_ = false;
  int64_t beyond_bound_ = 0;  // micro-batches

  std::thread writer_;  // last: it uses the rest
};

// One line, read back. Fields of other names are passed over. kInvalidArgument: the field, what was expected and what
// was found.
absl::StatusOr<StepRecord> ParseStepLogLine(absl::string_view line);

// All lines of a file, empty ones aside, and so is half a line at its end, which a killed job may leave. kNotFound when
// it cannot be read; kInvalidArgument with the file and the line.
absl::StatusOr<std::vector<StepRecord>> ReadStepLog(const std::string& file);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_OBS_STEP_LOG_H_
