#ifndef STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
#define STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_

// A trace file (trace_lines.h) and its two states. During the job the engine appends what it learns: a viewer shows the
// micro-batches in flight, and a kill loses nothing, because a JSON array of events may stay open. After the run the
// file is finished: clocks are aligned and everything else is drawn.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/obs/step_log.h"
#include "coordinator/trace/trace_job.h"

namespace stagecoach {

// Bytes of a recording, which is read as a whole when it is finished, and then takes some ten times as many.
inline constexpr uint64_t kMostRecordedTraceBytes = uint64_t{64} << 20;

// Records the micro-batches of one job. `append`: after those of earlier jobs, finished or not. What comes after
// `most_bytes` of the file is left out: the job is cut then. kInvalidArgument: the file cannot be written.
absl::StatusOr<std::unique_ptr<StepLog>> OpenTraceLog(const std::string& path, bool append, const TraceHeader& header,
                                                      uint64_t most_bytes = kMostRecordedTraceBytes);

// All jobs of a file. kNotFound: it cannot be read. kInvalidArgument: it is no trace, and which line shows it. An
// incomplete last line of a killed job is ignored. The last job of a finished file that lacks its end is cut.
absl::StatusOr<std::vector<TraceJob>> ReadTrace(const std::string& path);

// Writes aligned jobs as a WholeFile, whose errors these are.
absl::Status WriteTrace(const std::string& path, const std::vector<TraceJob>& jobs);

// Aligns and draws the jobs of a file that are not finished.
absl::Status FinishTrace(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TRACE_TRACE_FILE_H_
