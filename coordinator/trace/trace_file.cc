#include "coordinator/trace/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "coordinator/trace/trace_drawing.h"
#include "coordinator/trace/trace_lines.h"

namespace stagecoach {
namespace {

constexpr size_t kMostLineBytes = 16 << 20;
constexpr char kEnd[] = "\n]\n";  // after the last event of a finished file

absl::Status FileError(const char* what, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat("cannot ", what, " the trace '", path, "': ", std::strerror(errno)));
}

// Opens a finished file's array again, so that events can follow.
absl::Status Reopen(const std::string& path, int descriptor, off_t size) {
  constexpr off_t kEndBytes = sizeof(kEnd) - 1;
  char end[sizeof(kEnd)] = {};
  if (size < kEndBytes || pread(descriptor, end, kEndBytes, size - kEndBytes) != kEndBytes ||
      std::memcmp(end, kEnd, kEndBytes) != 0) {
    return absl::OkStatus();
  }
  if (ftruncate(descriptor, size - kEndBytes) == 0 && pwrite(descriptor, ",\n", 2, size - kEndBytes) == 2) {
    return absl::OkStatus();
  }
  return FileError("write", path);
}

// Whether there is something to append to.
absl::StatusOr<bool> ReopenTrace(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return errno == ENOENT ? absl::StatusOr<bool>(false) : FileError("write", path);
  struct stat file = {};
  absl::Status status;
  if (fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode)) status = Reopen(path, descriptor, file.st_size);
  close(descriptor);
  RETURN_IF_ERROR(status);
  return file.st_size > 0;
}

absl::Status TakeLine(absl::string_view line, std::vector<TraceJob>* jobs) {
  ASSIGN_OR_RETURN(std::optional<TraceJob> job, ParseTraceJobLine(line));
  if (job.has_value()) {
    jobs->push_back(*std::move(job));
    return absl::OkStatus();
  }
  if (jobs->empty()) {
    if (line.empty() || line == "[") return absl::OkStatus();
    return absl::InvalidArgumentError("it does not begin with a job");
  }
  TraceJob& present = jobs->back();
  ASSIGN_OR_RETURN(std::optional<TraceStep> step, ParseTraceStepLine(line, present.header.stages.size()));
  if (!step.has_value()) return absl::OkStatus();  // drawn
  if (!present.steps.empty() && step->number <= present.steps.back().number) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batch ", step->number, " comes after ", present.steps.back().number));
  }
  present.steps.push_back(*std::move(step));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepLog>> OpenTraceLog(const std::string& path, bool append, const TraceHeader& header,
                                                      uint64_t most_bytes) {
  bool after_others = false;
  if (append) {
    ASSIGN_OR_RETURN(after_others, ReopenTrace(path));
  }
  TraceJob job;
  job.header = header;
  StepLogFormat format;
  format.name = "trace";
  format.most_bytes = most_bytes;
  format.head = absl::StrCat(after_others ? "" : "[\n", TraceJobLine(job), ",\n");
  format.append = [](const StepRecord& record, std::string* lines) {
    const TraceStep step = TraceStepOf(record);
    AppendTraceStepLine(step, step.number, lines);
    *lines += ",\n";
    AppendTraceStepEndLine(step, step.number, lines);
    *lines += ",\n";
  };
  return StepLog::Open(path, append, std::move(format));
}

absl::StatusOr<std::vector<TraceJob>> ReadTrace(const std::string& path) {
  const auto no_trace = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is no trace of this program: ", why));
  };
  LineFile lines(path, kMostLineBytes);
  std::vector<TraceJob> jobs;
  bool ended = false;
  while (true) {
    const absl::StatusOr<std::optional<absl::string_view>> line = lines.Next();
    if (absl::IsInvalidArgument(line.status())) return no_trace(line.status().message());
    RETURN_IF_ERROR(line.status());
    if (!line->has_value()) break;
    ended = **line == "]";
    if (!lines.whole()) break;  // of a killed run the last line may be half
    const absl::Status taken = TakeLine(absl::StripSuffix(**line, ","), &jobs);
    if (!taken.ok()) return no_trace(absl::StrCat("line ", lines.number(), ": ", taken.message()));
  }
  if (jobs.empty()) return no_trace("no job is in it");
  if (jobs.back().aligned && !ended) jobs.back().cut = true;
  return jobs;
}

absl::Status WriteTrace(const std::string& path, const std::vector<TraceJob>& jobs) {
  WholeFile file(path, WholeFile::InPlace::kNever);  // the recording stays until it is whole
  RETURN_IF_ERROR(file.status());
  const char* separator = "[\n";
  for (size_t i = 0; i < jobs.size(); ++i) {
    DrawTrace(jobs[i], static_cast<int>(i), [&](const std::string& event) {
      file.Add(separator);
      file.Add(event);
      separator = ",\n";
    });
  }
  file.Add(kEnd);
  return file.Finish();
}

absl::Status FinishTrace(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<TraceJob> jobs, ReadTrace(path));
  if (std::all_of(jobs.begin(), jobs.end(), [](const TraceJob& job) { return job.aligned; })) return absl::OkStatus();
  for (TraceJob& job : jobs) RETURN_IF_ERROR(AlignTrace(&job));
  return WriteTrace(path, jobs);
}

}  // namespace stagecoach
